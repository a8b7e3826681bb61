package edge

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Bounds of one run.
const (
	callTimeout      = 20 * time.Second
	maxResponseBytes = 8 << 20
	leaderWaitMax    = 20 * time.Second

	coordinatorWaitMax = time.Minute
)

// What a broker may do instead of answering: close the connection, or say nothing until the time is over.
var (
	errClosed = errors.New("closed")
	errSilent = errors.New("no answer")
)

// env is one broker and what a run knows of it.
type env struct {
	ctx     context.Context
	addr    string
	node    int32             // id of the broker
	cluster string            // id of the cluster
	names   map[string]string // what stands in texts in place of values that differ from run to run
	ids     map[string][16]byte
	call    string     // name of the case that runs
	held    []net.Conn // requests that wait for their answers
}

// frame is a request without the size.
func frame(req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("edge")).AppendRequest(nil, req, 7)[4:]
}

// withSize puts a frame's size before it.
func withSize(f []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(f))), f...)
}

// hold sends a request whose answer nobody waits for and keeps its connection until the run ends.
func (e *env) hold(req kmsg.Request) error {
	conn, err := (&net.Dialer{Timeout: callTimeout}).DialContext(e.ctx, "tcp", e.addr)
	if err != nil {
		return err
	}
	e.held = append(e.held, conn)
	_, err = conn.Write(withSize(frame(req)))
	return err
}

// letGo closes what hold opened.
func (e *env) letGo() {
	for _, c := range e.held {
		_ = c.Close()
	}
	e.held = nil
}

// exchange sends a frame behind its size on a connection of its own and returns the answer without size and correlation id.
func (e *env) exchange(sized []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(e.ctx, callTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", e.addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := conn.Write(sized); err != nil {
		return nil, errClosed
	}
	var head [8]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return nil, errSilent
		}
		return nil, errClosed
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 4 || n > maxResponseBytes || binary.BigEndian.Uint32(head[4:]) != 7 {
		return nil, fmt.Errorf("an answer of %d bytes to request %d", n, binary.BigEndian.Uint32(head[4:]))
	}
	body := make([]byte, n-4)
	_, err = io.ReadFull(conn, body)
	return body, err
}

// ask sends a request and reads the answer.
func (e *env) ask(req kmsg.Request) (kmsg.Response, error) {
	body, err := e.exchange(withSize(frame(req)))
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && req.Key() != kmsg.ApiVersions.Int16() {
		body = body[min(1, len(body)):] // no tagged fields in the header
	}
	return resp, resp.ReadFrom(body)
}

// must is ask for what has to work before a case can begin.
func must[R kmsg.Response](e *env, req kmsg.Request) (r R, err error) {
	resp, err := e.ask(req)
	if err != nil {
		return r, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	return resp.(R), nil
}

// Topics of a run.
const (
	topicA       = "edge-a"       // two partitions, three records in the first
	topicCompact = "edge-compact" // compacted only
	topicTiered  = "edge-tiered"  // its older segments may go into the tier
	topicGone    = "edge-gone"    // deleted before the first case
)

// setUp makes the topics and learns what differs from run to run.
func (e *env) setUp() error {
	md := kmsg.NewPtrMetadataRequest()
	md.Version, md.Topics = 12, []kmsg.MetadataRequestTopic{}
	brokers, err := must[*kmsg.MetadataResponse](e, md)
	if err != nil {
		return err
	}
	if len(brokers.Brokers) != 1 {
		return fmt.Errorf("%d brokers: the list is for one", len(brokers.Brokers))
	}
	e.node, e.cluster = brokers.Brokers[0].NodeID, *brokers.ClusterID
	e.names = map[string]string{"text " + e.cluster: "cluster"}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version, create.TimeoutMillis = 7, 20_000
	for _, t := range []struct {
		name       string
		partitions int32
		policy     string
	}{{topicA, 2, "delete"}, {topicCompact, 1, "compact"}, {topicTiered, 1, "delete"}, {topicGone, 1, "delete"}} {
		topic := newTopic(t.name, t.partitions, 1)
		if t.name == topicTiered {
			topic = withConfig(topic, "remote.storage.enable", kmsg.StringPtr("true"))
		}
		topic.Configs = append(topic.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: "cleanup.policy", Value: kmsg.StringPtr(t.policy)})
		create.Topics = append(create.Topics, topic)
	}
	made, err := must[*kmsg.CreateTopicsResponse](e, create)
	if err != nil {
		return err
	}
	e.ids = map[string][16]byte{}
	for _, t := range made.Topics {
		if t.ErrorCode != 0 {
			return fmt.Errorf("create %s: %d", t.Topic, t.ErrorCode)
		}
		e.ids[t.Topic] = t.TopicID
		e.names[fmt.Sprintf("%x", t.TopicID)] = "id of " + t.Topic
	}
	if err := e.awaitLeaders(); err != nil {
		return err
	}
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.Version, del.TimeoutMillis, del.TopicNames = 5, 20_000, []string{topicGone}
	if _, err := must[*kmsg.DeleteTopicsResponse](e, del); err != nil {
		return err
	}
	if err := e.awaitGone(); err != nil {
		return err
	}
	resp, err := must[*kmsg.ProduceResponse](e, produce(e, 9, topicA, 0, batch(recordsOf("0", "1", "2"))))
	if err == nil && resp.Topics[0].Partitions[0].ErrorCode != 0 {
		err = fmt.Errorf("produce: %d", resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return err
	}
	return e.awaitCoordinators()
}

// awaitCoordinators waits until the coordinators of groups, transactions and share groups, where there are such, have
// loaded what they coordinate: they begin with the first call that looks for them.
func (e *env) awaitCoordinators() error {
	var probes []kmsg.Request
	for kind, key := range []string{"g", "t", "g:AAAAAAAAAAAAAAAAAAAAAQ:0"} {
		r := kmsg.NewPtrFindCoordinatorRequest()
		r.Version, r.CoordinatorType, r.CoordinatorKeys = 6, int8(kind), []string{key}
		probes = append(probes, r)
	}
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Version = 5
	for i := range 64 { // at least one in each partition of the offsets topic
		describe.Groups = append(describe.Groups, fmt.Sprint("g", i))
	}
	id := kmsg.NewPtrInitProducerIDRequest()
	id.Version, id.ProducerID, id.ProducerEpoch, id.TransactionTimeoutMillis = 4, -1, -1, 60_000
	probes = append(probes, describe, id)
	for end := time.Now().Add(coordinatorWaitMax); ; time.Sleep(100 * time.Millisecond) {
		codes := ""
		for _, r := range probes {
			resp, err := must[kmsg.Response](e, r)
			if err != nil {
				return err
			}
			codes += e.codesOf(resp) + " "
		}
		if !loading.MatchString(codes) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("no coordinators: %s", codes)
		}
	}
}

// loading finds the codes of coordinators that are not there yet: CoordinatorLoadInProgress, CoordinatorNotAvailable and
// NotCoordinator.
var loading = regexp.MustCompile(`(^|[= ])1[456]( |$)`)

// awaitLeaders waits until every partition of the new topics can be written.
func (e *env) awaitLeaders() error {
	for end := time.Now().Add(leaderWaitMax); ; time.Sleep(50 * time.Millisecond) {
		missing := false
		for _, at := range []struct {
			topic     string
			partition int32
		}{{topicA, 0}, {topicA, 1}, {topicCompact, 0}, {topicTiered, 0}} {
			resp, err := must[*kmsg.ListOffsetsResponse](e, listOffsets(1, at.topic, at.partition, -1))
			if err != nil {
				return err
			}
			missing = missing || resp.Topics[0].Partitions[0].ErrorCode != 0
		}
		if !missing {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("the topics have no leaders")
		}
	}
}

// awaitGone waits until nothing is left of the deleted topic.
func (e *env) awaitGone() error {
	for end := time.Now().Add(leaderWaitMax); ; time.Sleep(50 * time.Millisecond) {
		resp, err := must[*kmsg.FetchResponse](e, fetch(e, 13, topicGone, 0))
		const unknownTopicID = 100
		if err != nil || resp.Topics[0].Partitions[0].ErrorCode == unknownTopicID {
			return err
		}
		if time.Now().After(end) {
			return errors.New("the deleted topic is still served")
		}
	}
}
