package api

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/broker/commitlog"
	"varve/broker/config"
	"varve/broker/netio"
	"varve/broker/replica"
	"varve/metastore"
	"varve/protocol"
	"varve/protocol/event"
)

// Cluster is the metadata of one moment; *metastore.Image is one.
type Cluster interface {
	ClusterID() string
	Controller() int32
	Broker(id int32) (*metastore.Broker, bool)
	Brokers() []*metastore.Broker
	Topic(name string) (*metastore.Topic, bool)
	TopicByID(id protocol.UUID) (*metastore.Topic, bool)
	Topics() iter.Seq[*metastore.Topic]
}

// Replicas are the partitions on this broker; *replica.Manager.
type Replicas interface {
	Append(req *replica.AppendRequest, done func([]replica.AppendResult))
	Fetch(ctx context.Context, req *replica.FetchRequest) []replica.FetchResult
	NewSession() replica.FetchSession
	ListOffset(ctx context.Context, q replica.OffsetQuery) (replica.OffsetResult, error)
	OffsetForEpoch(q replica.EpochQuery) (replica.EpochEnd, error)
	DeleteRecords(ctx context.Context, topic string, partition int32, offset int64) (logStart int64, err error)
	Producers(topic string, partition int32) ([]commitlog.ProducerInfo, error)
	LogDir() replica.LogDir
}

// Options of a Dispatcher. All but Events and Reconfigure are needed.
type Options struct {
	NodeID      int32
	Config      *config.Config
	Cluster     func() Cluster // the newest metadata
	Replicas    Replicas
	Controller  Controller
	Groups      Groups
	ProducerIDs func(ctx context.Context) (first, count int64, err error) // a block of producer ids never given out before
	Events      event.Sink
	Reconfigure func() // may be nil: dynamic values of brokers were changed; returns once they act here
}

// unboundedIdleFetchWait bounds a fetch's wait where connections may be idle for
// ever: its peer may be gone without a sign.
const unboundedIdleFetchWait = time.Hour

// Dispatcher answers requests. It implements netio.Handler.
type Dispatcher struct {
	o           Options
	producerIDs idBlock
	autoCreate  autoCreator
	sessions    fetchSessions
	counts      requestCounts

	fetchMaxBytes int           // fetch.max.bytes
	fetchMaxWait  time.Duration // connections.max.idle.ms: a peer that waits longer would count as idle; an hour where that has no bound
}

// New returns a Dispatcher. Close ends what it does in the background.
func New(o Options) *Dispatcher {
	d := &Dispatcher{
		o:             o,
		fetchMaxBytes: o.Config.Int("fetch.max.bytes"),
		fetchMaxWait:  o.Config.Duration("connections.max.idle.ms"),
	}
	if d.fetchMaxWait < 0 {
		d.fetchMaxWait = unboundedIdleFetchWait
	}
	d.sessions.init(o.Config.Int("max.incremental.fetch.session.cache.slots"), o.Replicas.NewSession)
	d.producerIDs.init(o.ProducerIDs)
	d.counts.init()
	d.autoCreate.init(d)
	return d
}

// Close ends and waits for what the Dispatcher does in the background.
func (d *Dispatcher) Close() { d.autoCreate.close() }

// call is one request on its way.
type call struct {
	ctx    context.Context
	conn   *netio.Conn
	header protocol.Header
	began  time.Time
}

// Serve implements netio.Handler.
func (d *Dispatcher) Serve(ctx context.Context, conn *netio.Conn, frame []byte, done func(netio.Reply)) {
	h, body, err := protocol.ParseHeader(frame)
	if err != nil {
		done(closeFor(h, err))
		return
	}
	if !protocol.Supported(h.Key, h.Version) {
		if h.Key == protocol.KeyAPIVersions {
			done(unsupportedAPIVersions(h))
			return
		}
		done(closeFor(h, protocol.Errorf(protocol.UnsupportedVersion, "not served")))
		return
	}
	c := call{ctx: ctx, conn: conn, header: h, began: time.Now()}
	req, err := protocol.Decode(h.Key, h.Version, body)
	if err != nil {
		d.count(&c, true)
		done(closeFor(h, err))
		return
	}
	conn.Known()
	switch req := req.(type) {
	case *kmsg.ProduceRequest:
		d.produce(c, req, done)
	case *kmsg.FetchRequest:
		done(netio.Reply{Spans: d.fetch(c, req)})
	default:
		answer := func(resp kmsg.Response) {
			d.count(&c, holdsCode(reflect.ValueOf(resp)))
			done(encoded(h, resp))
		}
		if d.group(c, req, answer) {
			return
		}
		resp, err := d.answer(c, req)
		if err != nil {
			d.count(&c, true)
			done(closeFor(h, err))
			return
		}
		answer(resp)
	}
}

// encoded is the reply with a message.
func encoded(h protocol.Header, resp kmsg.Response) netio.Reply {
	resp.SetVersion(h.Version)
	return netio.Reply{Spans: []protocol.Span{protocol.MemSpan(protocol.Encode(nil, resp, h.CorrelationID))}}
}

// answer serves the requests whose replies are plain messages. An error closes
// the connection.
func (d *Dispatcher) answer(c call, req kmsg.Request) (kmsg.Response, error) {
	switch req := req.(type) {
	case *kmsg.ListOffsetsRequest:
		return d.listOffsets(c, req), nil
	case *kmsg.MetadataRequest:
		return d.metadata(c, req)
	case *kmsg.FindCoordinatorRequest:
		return d.findCoordinator(c, req), nil
	case *kmsg.ApiVersionsRequest:
		return d.apiVersions(req), nil
	case *kmsg.CreateTopicsRequest:
		return d.createTopics(c, req), nil
	case *kmsg.DeleteTopicsRequest:
		return d.deleteTopics(c, req), nil
	case *kmsg.InitProducerIDRequest:
		return d.initProducerID(c, req), nil
	case *kmsg.DescribeACLsRequest:
		return describeACLs(req)
	case *kmsg.CreateACLsRequest:
		return createACLs(req)
	case *kmsg.DeleteACLsRequest:
		return deleteACLs(req)
	case *kmsg.DescribeConfigsRequest:
		return d.describeConfigs(req), nil
	case *kmsg.DeleteRecordsRequest:
		return d.deleteRecords(c, req), nil
	case *kmsg.OffsetForLeaderEpochRequest:
		return d.offsetForLeaderEpoch(req), nil
	case *kmsg.DescribeLogDirsRequest:
		return d.describeLogDirs(req), nil
	case *kmsg.DescribeClientQuotasRequest:
		return d.describeClientQuotas(req), nil
	case *kmsg.DescribeProducersRequest:
		return d.describeProducers(req), nil
	case *kmsg.ListConfigResourcesRequest:
		return d.listConfigResources(req), nil
	case *kmsg.DescribeTopicPartitionsRequest:
		return d.describeTopicPartitions(c, req), nil
	case *kmsg.AlterConfigsRequest:
		return d.replaceConfigs(c, req), nil
	case *kmsg.IncrementalAlterConfigsRequest:
		return d.incrementalAlterConfigs(c, req), nil
	case *kmsg.CreatePartitionsRequest:
		return d.createPartitions(c, req), nil
	case *kmsg.ElectLeadersRequest:
		return d.electLeaders(c, req), nil
	case *kmsg.DescribeClusterRequest:
		return d.describeCluster(c, req), nil
	}
	return nil, &protocol.InvariantError{What: fmt.Sprintf("API key %d is advertised and has no handler", req.Key())}
}

// closeFor is the reply to what cannot be answered.
func closeFor(h protocol.Header, why error) netio.Reply {
	return netio.Reply{None: true, Close: true, Cause: fmt.Errorf("request of key %d version %d from client %q: %w", h.Key, h.Version, clip(h.ClientID), why)}
}

// clip bounds what a peer can put into our log.
func clip(s string) string {
	const maxClientIDBytes = 64
	return s[:min(len(s), maxClientIDBytes)]
}

// timeout bounds work for a client by the request's own timeout.
func timeout(c call, ms int32) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, time.Duration(max(ms, 0))*time.Millisecond)
}

// message is the error text of a response: nil where there is no error.
func message(err error) *string {
	if err == nil {
		return nil
	}
	s := protocol.MessageOf(err)
	return &s
}

// code is the error code of a response.
func code(err error) int16 { return int16(protocol.CodeOf(err)) }

func ptr[T any](v T) *T { return &v }
