package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"varve/tests/node"
)

// deleteRecords moves the start of a partition, and waits until the metadata's journal is in the bucket.
func deleteRecords(t *testing.T, n *node.Node, topic string, to int64) {
	t.Helper()
	var at kadm.Offsets
	at.AddOffset(topic, 0, to, -1)
	got, err := kadm.NewClient(client(t, n)).DeleteRecords(t.Context(), at)
	if err != nil || got.Error() != nil {
		t.Fatalf("delete records: %v %v", err, got.Error())
	}
	time.Sleep(1500 * time.Millisecond)
}

// TestRestoreBetweenDeletes goes back to a moment between two deletes of records and before one of a topic: what went before the moment stays
// gone, what went after it comes back. At the newest state the deleted topic does not come back.
func TestRestoreBetweenDeletes(t *testing.T) {
	l := newLost(t)
	n := node.StartT(t, l.node(t.TempDir()))
	l.fill(n, 3<<20)
	l.settled(n)
	s := l.loads[0]
	first, second := s.sums[0].records/3, 2*s.sums[0].records/3
	deleteRecords(t, n, s.topic, first)
	moment := time.Now().UTC()
	time.Sleep(1100 * time.Millisecond)
	deleteRecords(t, n, s.topic, second)
	if _, err := kadm.NewClient(client(t, n)).DeleteTopics(t.Context(), l.loads[1].topic); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	n.Kill()

	n = node.StartT(t, l.node(t.TempDir()))
	newest := l.restore(n)
	if len(newest.Topics) != 2 || newest.Topics[0].Partitions[0].LogStart != second {
		t.Fatalf("newest: %+v", newest)
	}
	n.Kill()

	n = node.StartT(t, l.node(t.TempDir()))
	r := l.restore(n, "--to", moment.Format(time.RFC3339Nano), "--cluster", newest.Source, "--take-over")
	if len(r.Topics) != 3 || r.Topics[0].Partitions[0].LogStart != first || len(r.Findings) > 0 {
		t.Fatalf("between: %+v", r)
	}
	l.loads[1].verify(t, n)
	l.loads[2].verify(t, n)
	listed, err := kadm.NewClient(client(t, n)).ListStartOffsets(t.Context(), s.topic)
	if err != nil {
		t.Fatal(err)
	}
	if at, _ := listed.Lookup(s.topic, 0); at.Offset != first {
		t.Fatalf("%s starts at %d, not %d", s.topic, at.Offset, first)
	}
	if got := int64(len(l.objects())); got != r.Segments+r.ToDelete+r.UnlistedObjects || r.ToDelete == 0 {
		t.Fatalf("the folder holds %d segments, the report has %d, and %d and %d to be deleted", got, r.Segments, r.ToDelete, r.UnlistedObjects)
	}
}

// TestRestoreSalvage removes all metadata from the bucket: the records come back from the segments, and the report says what does not.
func TestRestoreSalvage(t *testing.T) {
	l := newLost(t)
	n := node.StartT(t, l.node(t.TempDir()))
	l.fill(n, 1<<20)
	l.settled(n)
	topics := l.topics(n)
	n.Kill()
	metas, err := filepath.Glob(filepath.Join(l.dir, "*", "meta"))
	if err != nil || len(metas) != 1 {
		t.Fatalf("%v %v", metas, err)
	}
	if err := os.RemoveAll(metas[0]); err != nil {
		t.Fatal(err)
	}
	n = node.StartT(t, l.node(t.TempDir()))
	if out, err := tryTool(t, nil, nil, "tier", "restore", "--from", l.url, "--http", n.HTTP); err == nil || !strings.Contains(out, "--salvage") {
		t.Fatalf("restored without metadata: %v %s", err, out)
	}
	if out, err := tryTool(t, nil, nil, "tier", "restore", "--abort", "--http", n.HTTP); err != nil {
		t.Fatalf("abort: %v %s", err, out)
	}
	r := l.restore(n, "--salvage")
	if said := strings.Join(r.Lost, "\n"); len(r.Topics) != 3 || !strings.Contains(said, "group offsets") || !strings.Contains(said, "may be back") {
		t.Fatalf("%+v", r)
	}
	delete(topics, "__consumer_offsets")
	l.whole(n, topics, nil)
	l.listed(n)
}

// begin asks a node for a restore, as the tool does, and does not wait for it.
func (l *lost) begin(n *node.Node, source string) string {
	l.t.Helper()
	body := fmt.Sprintf(`{"from":%q,"cluster":%q,"takeOver":true}`, l.url, source)
	res, err := http.Post("http://"+n.HTTP+"/api/v1/tier/restore", "application/json", strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	var started struct{ ID string }
	if err := json.NewDecoder(res.Body).Decode(&started); err != nil || started.ID == "" {
		l.t.Fatalf("%s: %v", res.Status, err)
	}
	return started.ID
}

// ended waits for the end of a restore.
func (l *lost) ended(n *node.Node, id string) (r restored) {
	l.t.Helper()
	eventually(l.t, 30*time.Second, func() string {
		var st struct {
			Phase, Problem string
			Report         *restored
		}
		res, err := http.Get("http://" + n.HTTP + "/api/v1/tier/restore?id=" + id)
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(&st); err != nil {
			return err.Error()
		}
		if st.Report == nil {
			return fmt.Sprintf("in phase %q: %s", st.Phase, st.Problem)
		}
		r = *st.Report
		return ""
	})
	return r
}

// TestRestoreKilled kills the new node as soon as it tells of a phase of the restore, for each of them. The node that starts again goes on to
// the same end. (tiering's own tests crash at every single step.)
func TestRestoreKilled(t *testing.T) {
	l := newLost(t)
	n := node.StartT(t, l.node(t.TempDir()))
	l.fill(n, 1<<20)
	l.settled(n)
	groups := l.groups(n)
	if code, err := n.Terminate(t.Context()); err != nil || code != 0 {
		t.Fatalf("exit %d: %v", code, err)
	}
	source := ""
	for _, phase := range []string{"claim", "import", "groups", "publish", "snapshot"} {
		data := t.TempDir()
		n = node.StartT(t, l.node(data))
		id := l.begin(n, source)
		if phase != "claim" { // which it is in when it has answered: the folder may be taken over, or not yet
			eventually(t, 20*time.Second, func() string {
				if strings.Contains(n.Stderr(), "phase="+phase) {
					return ""
				}
				return "no phase " + phase
			})
		}
		n.Kill()
		n = node.StartT(t, l.node(data))
		r := l.ended(n, id)
		if source = r.Source; len(r.Topics) != 3 || len(r.Findings) > 0 {
			t.Fatalf("%s: %+v", phase, r)
		}
		for _, s := range l.loads {
			s.verify(t, n)
		}
		if got := l.groups(n); !maps.Equal(got, groups) {
			t.Fatalf("%s: groups %v, were %v", phase, got, groups)
		}
		l.listed(n)
		n.Kill()
	}
}
