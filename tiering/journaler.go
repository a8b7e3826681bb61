package tiering

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/proto"

	"varve/metastore"
	"varve/metastore/metapb"
	"varve/tiering/objstore"
)

// maxJournalObjectsInRound bounds one round; the rest waits for the next.
const maxJournalObjectsInRound = 100

// journalAll moves the metastore's outbox to the bucket, in order, while this node
// is the controller and the prefix is its cluster's.
func (m *Manager) journalAll(ctx context.Context) error {
	for range maxJournalObjectsInRound {
		m.mu.Lock()
		claimed := m.ownerEpoch != 0
		m.mu.Unlock()
		if !claimed || !m.o.Meta.IsController() {
			return nil
		}
		more, err := m.journalOne(ctx)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// journalOne stores one object and clears the outbox up to its last index. more:
// there were entries.
func (m *Manager) journalOne(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, journalDeadline)
	defer cancel()
	entries, first, _, err := m.o.Meta.JournalPending(maxJournalEntries)
	if err != nil || len(entries) == 0 {
		return false, err
	}
	entries = fitJournal(entries)
	body, err := EncodeJournal(m.o.Meta.JournaledThrough(), entries)
	if err != nil {
		return false, err
	}
	if err := m.fail(fpJournalPut); err != nil {
		return false, err
	}
	last := entries[len(entries)-1].Index
	key := journalKey(m.o.Prefix, m.o.ClusterID, first)
	crc := crc32.Checksum(body, castagnoli)
	_, err = m.o.Store.Put(ctx, key, objstore.BytesBody(body), objstore.PutOptions{IfNoneMatch: true, CRC32C: &crc, Cause: "journal"})
	if errors.Is(err, objstore.ErrPrecondition) {
		last, err = m.journalStands(ctx, key, entries)
	}
	if err != nil {
		return false, err
	}
	if err := m.fail(fpJournalClear); err != nil {
		return false, err
	}
	if err := m.o.Meta.JournalClear(ctx, last); err != nil {
		return false, err
	}
	m.o.Events.Emit(JournalWritten{First: first, Last: last, Entries: len(entries), Bytes: len(body)})
	return true, m.fail(fpJournalDone)
}

// fitJournal cuts entries to one object's size; at least one stays.
func fitJournal(entries []*metapb.JournalEntry) []*metapb.JournalEntry {
	size := 0
	for i, e := range entries {
		if size += proto.Size(e) + 4; size > maxJournalBytes && i > 0 {
			return entries[:i]
		}
	}
	return entries
}

// journalStands reads the object that already has the key: our own PUT whose reply
// was lost, or that of the controller before us. It returns its last index once
// every entry of the outbox up to there is in it; the object may hold more, entries
// and records, since what a newer record took back has gone from the outbox.
func (m *Manager) journalStands(ctx context.Context, key string, outbox []*metapb.JournalEntry) (last uint64, err error) {
	raw, err := m.getAll(ctx, key, maxJournalObjectBytes, "journal")
	if err != nil {
		return 0, err
	}
	object, err := DecodeJournal(raw)
	if err != nil {
		return 0, m.forked(key, err.Error())
	}
	stored := object.Entries
	byIndex := make(map[uint64]*metapb.JournalEntry, len(stored))
	for _, e := range stored {
		byIndex[e.Index] = e
	}
	last = stored[len(stored)-1].Index
	for _, e := range outbox {
		if e.Index > last {
			break
		}
		if s := byIndex[e.Index]; s == nil || !saysAgain(s, e) {
			return 0, m.forked(key, fmt.Sprintf("entry %d is not the metastore's", e.Index))
		}
	}
	return last, nil
}

// saysAgain reports whether an entry of the outbox is what was stored, but for records that newer ones have taken back since.
func saysAgain(stored, now *metapb.JournalEntry) bool {
	left := now.Records
	for _, r := range stored.Records {
		if len(left) > 0 && proto.Equal(r, left[0]) {
			left = left[1:]
		} else if !metastore.NewestCounts(r) {
			return false
		}
	}
	return len(left) == 0 && stored.TimeMs == now.TimeMs
}

func (m *Manager) forked(key, what string) error {
	m.o.Events.Emit(JournalForked{Key: key, What: what})
	return fmt.Errorf("tiering: journal object %s was not written from this metastore: %s", key, what)
}
