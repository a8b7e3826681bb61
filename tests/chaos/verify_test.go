package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"varve/broker/admin"
)

const (
	verifyLimit = 90 * time.Second
	settleLimit = 60 * time.Second
)

// verify stops the producer and reads everything that was acknowledged, then lets it go on.
func (tr *traffic) verify() {
	w := tr.w
	w.t.Helper()
	err := tr.pause()
	defer tr.resume()
	for _, t := range tr.topics {
		if err == nil {
			err = w.whole(t)
		}
	}
	if err = errors.Join(err, w.alarms.take()); err != nil {
		for _, t := range tr.topics {
			for _, l := range t.parts {
				w.show(t, l)
			}
		}
		w.t.Fatal(err)
	}
}

// show logs what stands behind the last offset that fits the ledger.
func (w *world) show(t *topic, l *ledger) {
	ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
	defer cancel()
	from := max(l.end()-3, 0)
	c := w.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.name: {l.partition: kgo.NewOffset().At(from)}}))
	defer c.Close()
	for it := c.PollFetches(ctx).RecordIter(); !it.Done(); {
		r := it.Next()
		if seq, _, err := parse(r.Partition, r.Value); r.Offset < from+8 {
			w.t.Logf("%s-%d at %d: record %d of producer %d/%d, leader epoch %d %v", t.name, r.Partition, r.Offset, seq, r.ProducerID, r.ProducerEpoch, r.LeaderEpoch, err)
		}
	}
}

// whole reads a topic, which nobody writes to now, from log start to its end.
func (w *world) whole(t *topic) error {
	ctx, cancel := context.WithTimeout(w.ctx, verifyLimit)
	defer cancel()
	starts, err := w.offsets(ctx, t, logStart)
	if err != nil {
		return err
	}
	ends, err := w.offsets(ctx, t, logEnd)
	if err != nil {
		return err
	}
	for p, l := range t.parts {
		if ends[p] != l.end() {
			return fmt.Errorf("%s-%d ends at %d, acknowledged were records up to %d", t.name, p, ends[p], l.end())
		}
		if starts[p] < t.starts[p] || starts[p] > 0 && !t.retains {
			return fmt.Errorf("%s-%d: the log start went from %d to %d", t.name, p, t.starts[p], starts[p])
		}
	}
	t.starts = starts
	marks := &timeMarks{}
	if err := w.pass(ctx, t, ends, marks.see); err != nil {
		return err
	}
	return w.byTime(ctx, t, marks)
}

// timeMarks are some of the records that were the first of their time, in the tier and in the local log.
type timeMarks struct {
	last  map[int32]int64 // newest time by partition, ms
	seen  int
	marks []*kgo.Record
}

func (m *timeMarks) see(r *kgo.Record) {
	if m.last == nil {
		m.last = map[int32]int64{}
	}
	ms := r.Timestamp.UnixMilli()
	if newest, ok := m.last[r.Partition]; ok && ms > newest {
		if m.seen++; m.seen%2000 == 1 {
			m.marks = append(m.marks, r)
		}
	}
	m.last[r.Partition] = max(m.last[r.Partition], ms)
}

// byTime asks for the marks by their times. Retention may have passed some.
func (w *world) byTime(ctx context.Context, t *topic, m *timeMarks) error {
	return w.admin(func(a *kadm.Client) error {
		for _, r := range m.marks {
			listed, err := a.ListOffsetsAfterMilli(ctx, r.Timestamp.UnixMilli(), t.name)
			if err == nil {
				err = listed.Error()
			}
			if err != nil {
				return fmt.Errorf("by time: %w", err)
			}
			got, _ := listed.Lookup(t.name, r.Partition)
			if got.Offset != r.Offset && !(t.retains && got.Offset > r.Offset) {
				return fmt.Errorf("%s-%d: by its time, record %d was found at %d", t.name, r.Partition, r.Offset, got.Offset)
			}
		}
		return nil
	})
}

// settled waits until all that was written is in the tier, then compares the bucket with what the broker counts.
func (w *world) settled() {
	w.t.Helper()
	w.eventually(settleLimit, func() string {
		st, err := w.status()
		if err != nil {
			return err.Error()
		}
		if len(st.Problems) > 0 {
			return strings.Join(st.Problems, "; ")
		}
		for _, p := range st.Partitions {
			if p.TierEnd != p.LocalEnd {
				return fmt.Sprintf("%s-%d: tier end %d, end %d: %s", p.Topic, p.Partition, p.TierEnd, p.LocalEnd, p.LastError)
			}
		}
		return w.bucketEquals(st)
	})
}

// tierObject is an object as `varve tier ls` tells it.
type tierObject struct {
	Key       string `json:"key"`
	Kind      string `json:"kind"`
	TopicID   string `json:"topicId"`
	Partition int32  `json:"partition"`
	Base      int64  `json:"base"`
	Next      int64  `json:"next"`
}

type tierPart struct {
	topic     string
	partition int32
}

// bucketEquals says how the listed objects differ from the broker's count, "" if they do not.
func (w *world) bucketEquals(st admin.TierStatus) string {
	objects := map[tierPart][]tierObject{}
	for _, o := range w.list() {
		switch o.Kind {
		case "segment":
			k := tierPart{o.TopicID, o.Partition}
			objects[k] = append(objects[k], o)
		case "other":
			return "an object of unknown kind: " + o.Key
		}
	}
	for _, p := range st.Partitions {
		k := tierPart{p.TopicID, p.Partition}
		if diff := differs(p, objects[k]); diff != "" {
			return fmt.Sprintf("%s-%d: %s", p.Topic, p.Partition, diff)
		}
		delete(objects, k)
	}
	for k, left := range objects {
		return fmt.Sprintf("%d objects of a topic that is no more, %v: %s", len(left), k, left[0].Key)
	}
	return ""
}

func differs(p admin.TierPartition, objects []tierObject) string {
	if int64(len(objects)) != p.Segments {
		return fmt.Sprintf("%d objects, %d segments", len(objects), p.Segments)
	}
	if len(objects) == 0 {
		return ""
	}
	if objects[0].Base > p.LogStart {
		return fmt.Sprintf("the first object begins at %d, the log at %d", objects[0].Base, p.LogStart)
	}
	next := objects[0].Base
	for _, o := range objects {
		if o.Base != next {
			return fmt.Sprintf("object [%d, %d) after %d", o.Base, o.Next, next)
		}
		next = o.Next
	}
	if next != p.TierEnd {
		return fmt.Sprintf("the last object ends at %d, the tier at %d", next, p.TierEnd)
	}
	return ""
}

// list asks the store itself, with the tool that needs no broker.
func (w *world) list() (out []tierObject) {
	w.t.Helper()
	cmd := exec.CommandContext(w.ctx, w.options.Binary, "tier", "ls", w.tierURL, "--format", "json")
	cmd.Env = append(os.Environ(), w.env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	raw, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("tier ls: %v %s", err, stderr.String())
	}
	for dec := json.NewDecoder(bytes.NewReader(raw)); ; {
		var o tierObject
		if err := dec.Decode(&o); err == io.EOF {
			return out
		} else if err != nil {
			w.t.Fatalf("tier ls: %v", err)
		}
		out = append(out, o)
	}
}
