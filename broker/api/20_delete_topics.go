package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/metastore/controller"
	"varve/protocol"
)

// DeleteTopics, key 20, versions 1 to 6 (DeleteTopicsRequest.json).
//
// Version 6 names topics by name or by id: both or neither is InvalidRequest, as
// is a name or id that occurs twice, or a name whose id was given too. With
// delete.topic.enable=false everything is TopicDeletionDisabled (InvalidRequest
// before version 3). Unknown names are UnknownTopicOrPartition, unknown ids
// UnknownTopicID. Messages go out from version 5.
func (d *Dispatcher) deleteTopics(c call, req *kmsg.DeleteTopicsRequest) kmsg.Response {
	x := deletion{cl: d.o.Cluster(), req: req, resp: kmsg.NewPtrDeleteTopicsResponse()}
	asked := req.Topics
	if req.Version <= 5 {
		asked = make([]kmsg.DeleteTopicsRequestTopic, len(req.TopicNames))
		for i, name := range req.TopicNames {
			asked[i].Topic = &name
		}
	}
	if !d.o.Config.Bool("delete.topic.enable") {
		err := protocol.TopicDeletionDisabled
		if req.Version < 3 {
			err = protocol.InvalidRequest
		}
		for _, t := range asked {
			x.add(t.Topic, t.TopicID, err)
		}
		return x.resp
	}
	ask := x.resolve(asked)
	if len(ask) > 0 {
		ctx, cancel := timeout(c, req.TimeoutMillis)
		defer cancel()
		for i, r := range d.o.Controller.DeleteTopics(ctx, ask) {
			name := x.names[ask[i].ID]
			x.add(&name, ask[i].ID, r.Err)
		}
	}
	return x.resp
}

type deletion struct {
	cl    Cluster
	req   *kmsg.DeleteTopicsRequest
	resp  *kmsg.DeleteTopicsResponse
	names map[protocol.UUID]string // of what is to be deleted
}

func (x *deletion) add(name *string, id protocol.UUID, err error) {
	out := kmsg.NewDeleteTopicsResponseTopic()
	out.Topic, out.TopicID, out.ErrorCode, out.ErrorMessage = name, id, code(err), message(err)
	if name == nil && x.req.Version <= 5 {
		out.Topic = new(string)
	}
	x.resp.Topics = append(x.resp.Topics, out)
}

// resolve answers what is wrong with the request itself and returns the rest, by
// id, as ControllerApis.deleteTopics does.
func (x *deletion) resolve(asked []kmsg.DeleteTopicsRequestTopic) []controller.DeleteTopic {
	names, ids := map[string]int{}, map[protocol.UUID]int{}
	for _, t := range asked {
		id := protocol.UUID(t.TopicID)
		switch {
		case t.Topic == nil && id.IsZero():
			x.add(nil, id, protocol.Errorf(protocol.InvalidRequest, "Neither topic name nor id were specified."))
		case t.Topic == nil:
			ids[id]++
		case !id.IsZero():
			x.add(t.Topic, id, protocol.Errorf(protocol.InvalidRequest, "You may not specify both topic name and topic id."))
		default:
			names[*t.Topic]++
		}
	}
	x.names = map[protocol.UUID]string{}
	for id, n := range ids {
		t, ok := x.cl.TopicByID(id)
		switch {
		case n > 1:
			x.add(nil, id, protocol.Errorf(protocol.InvalidRequest, "Duplicate topic id."))
		case !ok:
			x.add(nil, id, protocol.UnknownTopicID)
		default:
			x.names[id] = t.Name
		}
	}
	for name, n := range names {
		t, ok := x.cl.Topic(name)
		switch {
		case n > 1:
			x.add(&name, protocol.UUID{}, protocol.Errorf(protocol.InvalidRequest, "Duplicate topic name."))
		case !ok:
			x.add(&name, protocol.UUID{}, protocol.UnknownTopicOrPartition)
		case ids[t.ID] > 0:
			delete(x.names, t.ID)
			x.add(&name, t.ID, protocol.Errorf(protocol.InvalidRequest, "The provided topic name maps to an ID that was already supplied."))
		default:
			x.names[t.ID] = name
		}
	}
	out := make([]controller.DeleteTopic, 0, len(x.names))
	for id := range x.names {
		out = append(out, controller.DeleteTopic{ID: id})
	}
	return out
}
