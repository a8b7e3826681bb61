package group

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"varve/protocol"
)

// world drives a Machine by hand. Appends are stored at once unless they are held.
type world struct {
	t       testing.TB
	m       *Machine
	now     time.Time
	log     []Record // what was stored
	hold    bool
	held    []Append
	err     protocol.ErrorCode // of the next appends
	tickets int
	topics  map[string]bool
	out     strings.Builder
	settings
}

type settings = Settings

func testSettings() Settings {
	return Settings{
		MinSession: time.Second, MaxSession: time.Minute, InitialDelay: 3 * time.Second, MaxSize: 4, MaxOffsetMetadata: 10,
		Retention: time.Hour, RetentionCheck: 10 * time.Minute, MaxAppendBytes: 1 << 20,
	}
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, now: time.UnixMilli(1_000_000_000), settings: testSettings(), topics: map[string]bool{"t": true, "u": true}}
	w.load()
	return w
}

// load begins anew from what was stored, as after a restart.
func (w *world) load() {
	w.m, w.held, w.hold, w.err = NewMachine(w.settings), nil, false, protocol.None
	for _, r := range w.log {
		if _, err := w.m.Replay(r); err != nil {
			w.t.Fatal(err)
		}
	}
	w.step(Loaded{TopicExists: func(name string) bool { return w.topics[name] }})
}

// step takes an event and all that follows from it at once, and writes down what came out.
func (w *world) step(ev Event) {
	out := w.m.Step(w.now, ev)
	for _, e := range out.Events {
		fmt.Fprintf(&w.out, "  * %s", e.Name())
		for _, a := range e.Attrs() {
			fmt.Fprintf(&w.out, " %s=%v", a.Key, a.Value)
		}
		fmt.Fprintln(&w.out)
	}
	for _, a := range out.Answers {
		fmt.Fprintf(&w.out, "  %v <- %s\n", a.To, show(a.Result))
	}
	for _, a := range out.Appends {
		for _, r := range a.Records {
			fmt.Fprintf(&w.out, "  append %s\n", showRecord(r))
		}
		if w.hold {
			w.held = append(w.held, a)
			continue
		}
		w.stored(a, w.err)
	}
}

func (w *world) stored(a Append, err protocol.ErrorCode) {
	if err == protocol.None {
		w.log = append(w.log, a.Records...)
	}
	w.step(Appended{ID: a.ID, Err: err})
}

// pass lets time go by, timer by timer.
func (w *world) pass(d time.Duration) {
	until := w.now.Add(d)
	for n := 0; ; n++ {
		at, ok := w.m.Next()
		if !ok || at.After(until) || n > 10_000 {
			break
		}
		if at.After(w.now) {
			w.now = at
		}
		before := w.out.Len()
		w.step(Tick{Expire: true})
		if text := w.out.String(); len(text) > before && d > 0 {
			w.out.Reset()
			w.out.WriteString(text[:before])
			fmt.Fprintf(&w.out, "  at +%v\n%s", w.now.Sub(until.Add(-d)), text[before:])
		}
	}
	w.now = until
}

func (w *world) request(body any) {
	w.tickets++
	w.step(&Request{Ticket: "r" + strconv.Itoa(w.tickets), ClientID: "c", ClientHost: "/h", Unique: strconv.Itoa(w.tickets), Body: body})
}

func showRecord(r Record) string {
	p, known, err := parse(r)
	switch {
	case err != nil || !known:
		return fmt.Sprintf("not understood: %v", err)
	case p.isOffset && p.offset == nil:
		return fmt.Sprintf("offset %s %s-%d gone", p.group, p.topic, p.partition)
	case p.isOffset:
		s := fmt.Sprintf("offset %s %s-%d %d", p.group, p.topic, p.partition, p.offset.at)
		if p.offset.metadata != "" {
			s += " " + p.offset.metadata
		}
		if p.offset.expireMs != noTimestamp {
			s += fmt.Sprintf(" until %d", p.offset.expireMs)
		}
		return s
	case p.value == nil:
		return fmt.Sprintf("group %s gone", p.group)
	}
	s := fmt.Sprintf("group %s generation=%d protocol=%s leader=%s", p.group, p.value.Generation, deref(p.value.Protocol), deref(p.value.Leader))
	for _, m := range p.value.Members {
		s += fmt.Sprintf(" %s:%s", m.MemberID, m.Assignment)
	}
	return s
}

func deref(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func show(result any) string {
	switch r := result.(type) {
	case *kmsg.JoinGroupResponse:
		s := fmt.Sprintf("join %s", codeName(r.ErrorCode))
		if r.ErrorCode != 0 {
			return s + " member=" + r.MemberID
		}
		s += fmt.Sprintf(" member=%s generation=%d protocol=%s leader=%s", r.MemberID, r.Generation, deref(r.Protocol), r.LeaderID)
		if r.SkipAssignment {
			s += " skip"
		}
		for _, m := range r.Members {
			s += " " + m.MemberID
		}
		return s
	case *kmsg.SyncGroupResponse:
		return fmt.Sprintf("sync %s %s", codeName(r.ErrorCode), r.MemberAssignment)
	case *kmsg.HeartbeatResponse:
		return "heartbeat " + codeName(r.ErrorCode)
	case *kmsg.LeaveGroupResponse:
		s := "leave " + codeName(r.ErrorCode)
		for _, m := range r.Members {
			s += fmt.Sprintf(" %s:%s", m.MemberID+deref(m.InstanceID), codeName(m.ErrorCode))
		}
		return s
	}
	return showOffsets(result)
}

func showOffsets(result any) (s string) {
	switch r := result.(type) {
	case *kmsg.OffsetCommitResponse:
		s = "commit"
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				s += fmt.Sprintf(" %s-%d:%s", t.Topic, p.Partition, codeName(p.ErrorCode))
			}
		}
	case *kmsg.OffsetFetchResponseGroup:
		s = "offsets " + codeName(r.ErrorCode)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				s += fmt.Sprintf(" %s-%d=%d", t.Topic, p.Partition, p.Offset)
			}
		}
	case *kmsg.OffsetDeleteResponse:
		s = "offset delete " + codeName(r.ErrorCode)
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				s += fmt.Sprintf(" %s-%d:%s", t.Topic, p.Partition, codeName(p.ErrorCode))
			}
		}
	case *kmsg.DescribeGroupsResponseGroup:
		s = fmt.Sprintf("describe %s %s type=%s protocol=%s", codeName(r.ErrorCode), r.State, r.ProtocolType, r.Protocol)
		for _, m := range r.Members {
			s += fmt.Sprintf(" %s:%s", m.MemberID, m.MemberAssignment)
		}
	case *kmsg.DeleteGroupsResponseGroup:
		s = "delete " + codeName(r.ErrorCode)
	case []kmsg.ListGroupsResponseGroup:
		s = "list"
		for _, g := range r {
			s += fmt.Sprintf(" %s:%s", g.Group, g.GroupState)
		}
	default:
		s = fmt.Sprintf("%T", result)
	}
	return s
}

func codeName(code int16) string {
	if code == 0 {
		return "ok"
	}
	name, _, _ := strings.Cut(protocol.ErrorCode(code).Error(), ":")
	return name
}

// TestTranscripts runs the scripts in testdata; -rewrite writes what happens into them. Commands:
//
//	join|sync|heartbeat|leave|commit|fetch|describe|list|delete|delete-offsets arguments
//	pass 3s           lets time go by; beating=ID sends heartbeats of a member meanwhile
//	hold              keeps appends back; store, or fail CODE, ends all that are held
//	failing CODE      fails appends from now on
//	restart           begins anew from what was stored
//	topic-gone t      a topic is deleted
//	stop CODE
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		w := newWorld(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.out.Reset()
			w.t = t
			w.run(d)
			if w.out.Len() == 0 {
				return "  nothing\n"
			}
			return w.out.String()
		})
	})
}

func (w *world) run(d *datadriven.TestData) {
	switch d.Cmd {
	case "pass":
		after, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			w.t.Fatal(err)
		}
		a := args{w.t, d}
		for beat := 5 * time.Second; a.str("beating", "") != "" && after > beat; after -= beat {
			w.pass(beat)
			before := w.out.String()
			w.request(&kmsg.HeartbeatRequest{Group: a.str("group", "g"), MemberID: a.str("beating", ""), Generation: a.num("generation", 1)})
			w.tickets--
			w.out.Reset()
			w.out.WriteString(before)
		}
		w.pass(after)
	case "hold":
		w.hold = true
	case "store", "fail":
		held := w.held
		w.hold, w.held = false, nil
		for _, a := range held {
			err := protocol.None
			if d.Cmd == "fail" {
				err = codeNamed(w.t, d.CmdArgs[0].Key)
			}
			w.stored(a, err)
		}
	case "failing":
		w.err = codeNamed(w.t, d.CmdArgs[0].Key)
	case "restart":
		w.load()
	case "topic-gone":
		delete(w.topics, d.CmdArgs[0].Key)
		w.step(TopicsGone{Topics: []string{d.CmdArgs[0].Key}})
	case "stop":
		w.step(Stop{Err: codeNamed(w.t, d.CmdArgs[0].Key)})
	case "settings":
		w.set(d)
	default:
		w.request(bodyOf(w.t, d))
		w.pass(0)
	}
}

func (w *world) set(d *datadriven.TestData) {
	for _, a := range d.CmdArgs {
		switch v := a.Vals[0]; a.Key {
		case "max-size":
			w.MaxSize, _ = strconv.Atoi(v)
		case "initial-delay":
			w.InitialDelay, _ = time.ParseDuration(v)
		case "max-append":
			w.MaxAppendBytes, _ = strconv.Atoi(v)
		default:
			w.t.Fatal("no such setting", a.Key)
		}
	}
	w.load()
}

func codeNamed(t testing.TB, name string) protocol.ErrorCode {
	for c := int16(-1); c < 140; c++ {
		if codeName(c) == name {
			return protocol.ErrorCode(c)
		}
	}
	t.Fatal("no such code", name)
	return 0
}

// args are a command's arguments with defaults.
type args struct {
	t testing.TB
	d *datadriven.TestData
}

func (a args) str(key, otherwise string) string {
	for _, c := range a.d.CmdArgs {
		if c.Key == key && len(c.Vals) > 0 {
			return c.Vals[0]
		}
	}
	return otherwise
}

func (a args) list(key string, otherwise ...string) []string {
	for _, c := range a.d.CmdArgs {
		if c.Key == key {
			return slices.DeleteFunc(slices.Clone(c.Vals), func(s string) bool { return s == "" })
		}
	}
	return otherwise
}

func (a args) num(key string, otherwise int) int32 {
	n, err := strconv.Atoi(a.str(key, strconv.Itoa(otherwise)))
	if err != nil {
		a.t.Fatal(err)
	}
	return int32(n)
}

func (a args) ptr(key string) *string {
	if v := a.str(key, "\x00"); v != "\x00" {
		return &v
	}
	return nil
}

// tp reads topic-partition[=offset].
func (a args) tp(s string) (topic string, partition int32, offset int64) {
	s, at, _ := strings.Cut(s, ":")
	topic, index, _ := strings.Cut(s, "-")
	n, err := strconv.Atoi(index)
	if err != nil {
		a.t.Fatal(err)
	}
	if at != "" {
		if offset, err = strconv.ParseInt(at, 10, 64); err != nil {
			a.t.Fatal(err)
		}
	}
	return topic, int32(n), offset
}
