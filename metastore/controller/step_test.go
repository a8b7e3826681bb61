package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/protocol"
)

// TestGolden runs transcripts of events against the pure steps; a store applies what they decide. `go test -rewrite` writes them anew.
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/golden", func(t *testing.T, path string) {
		s, err := metastore.Open(context.Background(), metastore.Options{Dir: t.TempDir(), NodeID: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(context.Background())
		g := &golden{store: s, opts: Options{TopicPolicy: testPolicy, ValidateTopicConfig: testValidate, DefaultPartitions: 2}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for _, line := range strings.Split(d.Input, "\n") {
				if f := strings.Fields(line); len(f) > 0 {
					out.WriteString(g.line(t, f))
				}
			}
			return out.String()
		})
	})
}

func testPolicy(c map[string]string) TopicPolicy {
	n, _ := strconv.Atoi(c["min.insync.replicas"])
	return TopicPolicy{Tiered: c["remote.storage.enable"] == "true", MinISR: max(n, 1), Unclean: c["unclean.leader.election.enable"] == "true"}
}

func testValidate(c map[string]string) error {
	if _, ok := c["bad"]; ok {
		return protocol.Errorf(protocol.InvalidConfig, "Unknown topic config name: bad")
	}
	return nil
}

type golden struct {
	store *metastore.Store
	opts  Options
}

type words map[string]string

func (w words) num(key string, def int64) int64 {
	if n, err := strconv.ParseInt(w[key], 10, 64); err == nil {
		return n
	}
	return def
}

func list(s string) (out []int32) {
	for _, x := range strings.Split(s, ",") {
		if n, err := strconv.Atoi(x); err == nil {
			out = append(out, int32(n))
		}
	}
	return out
}

func uid(name string) (id protocol.UUID) {
	copy(id[:], "----------------")
	copy(id[:], name)
	return id
}

func (g *golden) line(t *testing.T, f []string) string {
	w := words{}
	for _, x := range f[1:] {
		k, v, _ := strings.Cut(x, "=")
		w[k] = v
	}
	img := g.store.Image()
	if f[0] == "image" {
		return imageText(img)
	}
	p, note, err := g.step(t, img, f[0], w)
	text := f[0]
	if err == nil {
		err = g.apply(&p)
	}
	if err != nil {
		return text + ": " + err.Error() + "\n"
	}
	text += ": ok" + note
	for _, c := range p.cmds {
		text += " " + commandText(c)
	}
	if len(p.unclean) > 0 {
		text += fmt.Sprintf(" unclean %v", p.unclean)
	}
	if len(p.erased) > 0 {
		text += fmt.Sprintf(" erased %v", p.erased)
	}
	return text + "\n"
}

func (g *golden) apply(p *plan) error {
	for _, c := range p.cmds {
		if _, err := g.store.Propose(context.Background(), c); err != nil {
			return err
		}
	}
	return nil
}

func commandText(c *metapb.Command) string {
	n := strings.TrimPrefix(fmt.Sprintf("%T", c.Body), "*metapb.Command_")
	for _, ch := range [][]*metapb.PartitionChange{
		c.GetChangePartitions().GetChanges(), c.GetRegisterBroker().GetChanges(), c.GetFenceBroker().GetChanges(), c.GetUnfenceBroker().GetChanges(),
	} {
		if len(ch) > 0 {
			n += fmt.Sprintf("(%d partitions)", len(ch))
		}
	}
	return n
}

func imageText(img *metastore.Image) string {
	var b strings.Builder
	for _, br := range img.Brokers() {
		fmt.Fprintf(&b, "broker %d fenced %v\n", br.ID, br.Fenced)
	}
	for t := range img.Topics() {
		fmt.Fprintf(&b, "%s %v\n", t.Name, t.Configs)
		for _, p := range t.Partitions {
			var dirs []string
			for _, d := range p.Dirs {
				dirs = append(dirs, strings.Trim(string(d[:]), "-\x00"))
			}
			fmt.Fprintf(&b, "  %d replicas %v in %v isr %v elr %v leader %d epoch %d\n", p.Index, p.Replicas, dirs, p.ISR, p.ELR, p.Leader, p.LeaderEpoch)
		}
	}
	return b.String()
}

// epochOf is the broker's epoch, or that of the line.
func epochOf(img *metastore.Image, w words) int64 {
	b, ok := img.Broker(int32(w.num("id", 0)))
	if !ok {
		return -1
	}
	return w.num("epoch", b.Epoch)
}

func (g *golden) step(t *testing.T, img *metastore.Image, name string, w words) (p plan, note string, err error) {
	id := int32(w.num("id", 0))
	switch name {
	case "register":
		prev := int64(-1)
		if w["clean"] == "true" {
			prev = epochOf(img, w)
		}
		p, same, err := stepRegister(img, Registration{
			ID: id, Incarnation: uid(w["inc"]), Dirs: []protocol.UUID{uid(w["dir"])}, Rack: w["rack"], PrevEpoch: prev,
		}, testPolicy, w["live"] == "true")
		if same > 0 {
			note = " again"
		}
		return p, note, err
	case "unfence":
		p, err = stepUnfence(img, id, epochOf(img, w), testPolicy)
	case "fence":
		p, err = stepFence(img, id, epochOf(img, w), testPolicy)
	case "settle":
		p = stepSettle(img, testPolicy)
	case "lost":
		topic, part := target(img, w)
		p, err = stepReplicaLost(img, topic, part, id, epochOf(img, w), testPolicy)
	case "assign":
		var as []DirAssignment
		for tp := range img.Topics() {
			for _, part := range tp.Partitions {
				as = append(as, DirAssignment{TopicID: tp.ID, Partition: part.Index, Dir: uid(w["dir"])})
			}
		}
		p, err = stepAssignDirs(img, id, epochOf(img, w), as)
	case "alter-isr":
		topic, part := target(img, w)
		a := AlterPartition{TopicID: topic, Partition: part, NewISR: list(w["isr"])}
		if have, ok := img.Partition(topic, part); ok {
			a.LeaderEpoch, a.PartitionEpoch = int32(w.num("le", int64(have.LeaderEpoch))), int32(w.num("pe", int64(have.PartitionEpoch)))
		}
		p, err = stepAlterPartition(img, id, a, testPolicy)
	default:
		return g.topicStep(t, img, name, w)
	}
	return p, note, err
}

func target(img *metastore.Image, w words) (protocol.UUID, int32) {
	name, n, _ := strings.Cut(w["of"], "-")
	part, _ := strconv.Atoi(n)
	if t, ok := img.Topic(name); ok {
		return t.ID, int32(part)
	}
	return uid(name), int32(part)
}

func configs(s string) map[string]string {
	out := map[string]string{}
	for _, kv := range strings.Split(s, ",") {
		if k, v, ok := strings.Cut(kv, ":"); ok {
			out[k] = v
		}
	}
	return out
}

func (g *golden) topicStep(t *testing.T, img *metastore.Image, name string, w words) (p plan, note string, err error) {
	switch name {
	case "create":
		c := CreateTopic{Name: w["topic"], Partitions: int32(w.num("n", -1)), ReplicationFactor: int16(w.num("rf", -1)), Configs: configs(w["configs"])}
		for i, a := range strings.Split(w["on"], "/") {
			if w["on"] != "" {
				c.Assignments = append(c.Assignments, Assignment{Partition: int32(w.num("first", 0)) + int32(i), Brokers: list(a)})
			}
		}
		p, r := stepCreateTopic(img, c, &g.opts, uid(w["topic"]), uint32(w.num("seed", 0)))
		return p, "", r.Err
	case "delete":
		d := DeleteTopic{Name: w["topic"]}
		if w["tid"] != "" {
			d.ID = uid(w["tid"])
		}
		p, r := stepDeleteTopic(img, d)
		return p, "", r.Err
	case "add":
		c := CreatePartitions{Topic: w["topic"], Count: int32(w.num("n", 0))}
		if w["on"] != "" {
			for _, a := range strings.Split(w["on"], "/") {
				c.Assignments = append(c.Assignments, list(a))
			}
		}
		p, err = stepCreatePartitions(img, c, uint32(w.num("seed", 0)))
	case "elect":
		var parts []TopicPartition
		for _, x := range strings.Split(w["of"], ",") {
			if topic, n, ok := strings.Cut(x, "-"); ok {
				part, _ := strconv.Atoi(n)
				parts = append(parts, TopicPartition{topic, int32(part)})
			}
		}
		var out []ElectResult
		p, out = stepElect(img, parts, w["unclean"] == "true", testPolicy)
		for _, r := range out {
			note += fmt.Sprintf(" %s-%d %v", r.Topic, r.Partition, r.Err)
		}
	case "configs":
		p, err = stepAlterConfigs(img, ConfigChange{Topic: w["topic"], Broker: int32(w.num("broker", -1)), Edit: editOf(configs(w["set"]), nonEmpty(w["remove"]))}, &g.opts)
	default:
		t.Fatalf("unknown step %q", name)
	}
	return p, note, err
}

// editOf sets some values and removes others.
func editOf(set map[string]string, remove []string) func(map[string]string) (map[string]string, error) {
	return func(old map[string]string) (map[string]string, error) {
		next := map[string]string{}
		maps.Copy(next, old)
		maps.Copy(next, set)
		for _, key := range remove {
			delete(next, key)
		}
		return next, nil
	}
}

func nonEmpty(s string) []string {
	return slices.DeleteFunc(strings.Split(s, ","), func(x string) bool { return x == "" })
}

// TestEligibleOnlyBelowMinISR: where a change of configs was not followed, by a crash or because it was that of all brokers, an in-sync set that
// was large enough leaves nobody else eligible.
func TestEligibleOnlyBelowMinISR(t *testing.T) {
	part := &metastore.Partition{Replicas: []int32{1, 2, 3}, Dirs: make([]protocol.UUID, 3), ISR: []int32{1}, ELR: []int32{2, 3}, Leader: 1}
	for minISR, want := range map[int]int32{1: -1, 2: 2} {
		e := newEdit(&metastore.Topic{}, part, TopicPolicy{MinISR: minISR}, func(id int32) bool { return id != 1 })
		e.leave(1)
		if c, _ := e.build(); c.GetState().GetLeader() != want || !slices.Contains(c.GetState().GetElr(), 1) {
			t.Errorf("min.insync.replicas %d: %v, want leader %d", minISR, c.GetState(), want)
		}
	}
}
