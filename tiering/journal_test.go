package tiering

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/event"
	"varve/tiering/objstore"
)

func testEntries(first uint64, n int) (out []*metapb.JournalEntry) {
	for i := range uint64(n) {
		out = append(out, &metapb.JournalEntry{Index: first + 2*i, TimeMs: int64(1_700_000_000_000 + i), Records: []*metapb.JournalRecord{
			{Body: &metapb.JournalRecord_LogStart{LogStart: &metapb.LogStartMoved{TopicId: make([]byte, 16), Partition: int32(i), LogStart: 77}}},
			{Body: &metapb.JournalRecord_TopicDeleted{TopicDeleted: &metapb.TopicDeleted{Name: "gone"}}},
		}})
	}
	return out
}

func TestJournalGolden(t *testing.T) {
	entries := testEntries(1000, 3)
	b, err := EncodeJournal(7, entries)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "journal-v2.jnl", b)
	v1, err := os.ReadFile("testdata/journal-v1.jnl")
	if err != nil {
		t.Fatal(err)
	}
	for version, raw := range map[int][]byte{1: v1, 2: b} {
		got, err := DecodeJournal(raw)
		if err != nil || len(got.Entries) != 3 || got.Chained != (version == 2) || got.Chained && got.Prev != 7 {
			t.Fatalf("version %d: %d entries after %d: %v", version, len(got.Entries), got.Prev, err)
		}
		for i := range got.Entries {
			if !proto.Equal(got.Entries[i], entries[i]) {
				t.Fatalf("version %d: entry %d differs", version, i)
			}
		}
	}
	if _, err := EncodeJournal(0, nil); err == nil {
		t.Fatal("an empty object was made")
	}
}

func TestJournalDamage(t *testing.T) {
	good, err := EncodeJournal(7, testEntries(1000, 2))
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 0x10
		var bad *protocol.CorruptionError
		var newer *FormatError
		if _, err := DecodeJournal(b); !errors.As(err, &bad) && !errors.As(err, &newer) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		if _, err := DecodeJournal(good[:i]); err == nil {
			t.Fatalf("cut to %d bytes: no error", i)
		}
	}
	backwards := testEntries(1000, 2)
	backwards[0], backwards[1] = backwards[1], backwards[0]
	b, _ := EncodeJournal(7, backwards)
	if _, err := DecodeJournal(b); err == nil {
		t.Fatal("entries out of order were read")
	}
}

func FuzzDecodeJournal(f *testing.F) {
	good, _ := EncodeJournal(7, testEntries(1, 2))
	f.Add(good[journalHeaderBytes:], uint32(2), true)
	f.Add(good, uint32(0), false)
	f.Fuzz(func(t *testing.T, b []byte, count uint32, seal bool) {
		if seal { // what lies behind the checksum
			h := make([]byte, journalHeaderBytes)
			copy(h, good[:16])
			binary.BigEndian.PutUint32(h[12:], count)
			binary.BigEndian.PutUint32(h[32:], uint32(len(b)))
			b = append(h, b...)
			binary.BigEndian.PutUint32(b[36:], journalCRC(b))
		}
		_, _ = DecodeJournal(b)
	})
}

// newTestManager is a Manager over a mem store and a fake metastore.
func newTestManager(t *testing.T, change func(*Options)) (*Manager, *fakeMeta, *objstore.Faulty, *event.Recorder) {
	t.Helper()
	meta, rec := newFakeMeta(), &event.Recorder{}
	store := objstore.NewFaulty(objstore.NewMem(nil), 1)
	o := Options{Store: store, Location: "mem:", Prefix: "p", Meta: meta, ClusterID: "c", BrokerID: 1, Events: rec.Emit}
	if change != nil {
		change(&o)
	}
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.fills.close(); m.cache.close() })
	return m, meta, store, rec
}

func TestJournalWritesInOrder(t *testing.T) {
	ctx := context.Background()
	m, meta, store, _ := newTestManager(t, nil)
	if err := m.ClaimOwner(ctx); err != nil {
		t.Fatal(err)
	}
	meta.outbox = testEntries(10, 5)
	if err := m.journalAll(ctx); err != nil || len(meta.outbox) != 0 || meta.journaled != 18 {
		t.Fatalf("left %d, through %d: %v", len(meta.outbox), meta.journaled, err)
	}
	raw, err := m.getAll(ctx, journalKey("p", "c", 10), 1<<20, "")
	if got, derr := DecodeJournal(raw); err != nil || derr != nil || len(got.Entries) != 5 {
		t.Fatalf("%v %v", err, derr)
	}
	puts := store.Calls(objstore.VerbPut)
	meta.controller, meta.outbox = false, testEntries(100, 1)
	if err := m.journalAll(ctx); err != nil || store.Calls(objstore.VerbPut) != puts {
		t.Fatalf("wrote without being the controller: %v", err)
	}
}

// TestJournalMeetsItsOwn: a lost reply, and a controller that died before the
// clearing, after which a log-start move was coalesced away.
func TestJournalMeetsItsOwn(t *testing.T) {
	ctx := context.Background()
	m, meta, store, rec := newTestManager(t, nil)
	if err := m.ClaimOwner(ctx); err != nil {
		t.Fatal(err)
	}
	store.Add(objstore.Fault{Kind: objstore.FaultLostReply, Verb: objstore.VerbPut, Key: "journal"})
	meta.outbox = testEntries(10, 4)
	if err := m.journalAll(ctx); !objstore.IsRetryable(err) || len(meta.outbox) != 4 {
		t.Fatalf("lost reply: %v", err)
	}
	later := testEntries(30, 2)
	meta.outbox = append(append(meta.outbox[:1:1], meta.outbox[2:]...), later...)
	if err := m.journalAll(ctx); err != nil || len(meta.outbox) != 0 || meta.journaled != 32 {
		t.Fatalf("left %d, through %d: %v", len(meta.outbox), meta.journaled, err)
	}
	if rec.Count("tier_journal_forked") != 0 {
		t.Fatal("own object taken for a fork")
	}
	raw, _ := m.getAll(ctx, journalKey("p", "c", 30), 1<<20, "")
	if got, err := DecodeJournal(raw); err != nil || len(got.Entries) != 2 || got.Prev != 16 {
		t.Fatalf("second object: %v", err)
	}
}

// TestJournalMeetsWhatWasTakenBack: after a lost reply a newer log start takes back its own record of an entry, and no other. The object
// that has both is no fork; one that lacks what the outbox has, or has another record beside, is.
func TestJournalMeetsWhatWasTakenBack(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		change func(*metapb.JournalEntry)
		forks  bool
	}{
		"the log start": {func(e *metapb.JournalEntry) { e.Records = e.Records[1:] }, false},
		"the other one": {func(e *metapb.JournalEntry) { e.Records = e.Records[:1] }, true},
		"both":          {func(e *metapb.JournalEntry) { e.Records = nil }, true},
		"one more":      {func(e *metapb.JournalEntry) { e.Records = append(e.Records, e.Records[0]) }, true},
		"the time":      {func(e *metapb.JournalEntry) { e.TimeMs++ }, true},
	} {
		t.Run(name, func(t *testing.T) {
			m, meta, store, rec := newTestManager(t, nil)
			if err := m.ClaimOwner(ctx); err != nil {
				t.Fatal(err)
			}
			store.Add(objstore.Fault{Kind: objstore.FaultLostReply, Verb: objstore.VerbPut, Key: "journal"})
			meta.outbox = testEntries(10, 3)
			if err := m.journalAll(ctx); !objstore.IsRetryable(err) {
				t.Fatal(err)
			}
			c.change(meta.outbox[1])
			err := m.journalAll(ctx)
			if forked := rec.Count("tier_journal_forked") != 0; forked != c.forks || (err != nil) != c.forks || (len(meta.outbox) != 0) != c.forks {
				t.Fatalf("forked %v, %d entries are left: %v", forked, len(meta.outbox), err)
			}
		})
	}
}

func TestJournalFork(t *testing.T) {
	ctx := context.Background()
	for name, there := range map[string]func() []byte{
		"other entry": func() []byte {
			e := testEntries(10, 2)
			e[1].TimeMs++
			b, _ := EncodeJournal(7, e)
			return b
		},
		"entry missing": func() []byte { b, _ := EncodeJournal(7, slices.Delete(testEntries(10, 3), 1, 2)); return b },
		"garbage":       func() []byte { return []byte("garbage") },
	} {
		t.Run(name, func(t *testing.T) {
			m, meta, store, rec := newTestManager(t, nil)
			if err := m.ClaimOwner(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Put(ctx, journalKey("p", "c", 10), objstore.BytesBody(there()), objstore.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			meta.outbox = testEntries(10, 3)
			if err := m.journalAll(ctx); err == nil || len(meta.outbox) != 3 || rec.Count("tier_journal_forked") != 1 {
				t.Fatalf("left %d, %d alarms: %v", len(meta.outbox), rec.Count("tier_journal_forked"), err)
			}
		})
	}
}

func TestJournalObjectsAreBounded(t *testing.T) {
	entries := testEntries(1, 10)
	for _, e := range entries {
		e.Records = append(e.Records, &metapb.JournalRecord{Body: &metapb.JournalRecord_TopicDeleted{TopicDeleted: &metapb.TopicDeleted{Name: string(make([]byte, 1<<20))}}})
	}
	if n := len(fitJournal(entries)); n != 3 {
		t.Fatalf("%d entries of 1 MiB in an object of 4 MiB", n)
	}
	if n := len(fitJournal(entries[:1])); n != 1 {
		t.Fatal("nothing fits")
	}
}

// TestJournalAtTheEnd: an orderly stop leaves nothing in the outbox; a store that is away holds it up for a bounded time.
func TestJournalAtTheEnd(t *testing.T) {
	w := newWorld(t, keepAll(), func(o *Options) { o.TaskIntervalMs, o.JournalIntervalMs = 10, 3_600_000 })
	w.start()
	stop := w.run()
	w.append(100, 0)
	w.m.Nudge(w.part.id, 0)
	w.await(func() bool {
		st, _ := w.meta.Tier(w.part.id, 0)
		return st.End > 0 && st.End == w.sealedEnd()
	})
	stop()
	entries, _, _, err := w.meta.JournalPending(10)
	if err != nil || len(entries) != 0 {
		t.Fatalf("%d entries are left: %v", len(entries), err)
	}
}
