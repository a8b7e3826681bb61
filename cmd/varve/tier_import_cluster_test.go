package main

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"varve/broker/commitlog"
	"varve/broker/config"
	"varve/protocol"
	"varve/protocol/record"
)

// kafkaDir writes a log directory of Apache Kafka's with empty folders of topics by their ids, and a metadata log if there are records.
func kafkaDir(t *testing.T, cluster string, folders map[string]protocol.UUID, epoch int32, metadata ...[]byte) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, data []byte) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("meta.properties", fmt.Appendf(nil, "version=1\nnode.id=1\ncluster.id=%s\n", cluster))
	for name, id := range folders {
		write(name+"/partition.metadata", fmt.Appendf(nil, "version: 0\ntopic_id: %s\n", id))
	}
	if metadata == nil {
		return dir
	}
	b := record.NewBuilder(record.Options{LeaderEpoch: epoch})
	for _, v := range metadata {
		if err := b.Add(1, nil, v); err != nil {
			t.Fatal(err)
		}
	}
	batch, err := b.Batch()
	if err != nil {
		t.Fatal(err)
	}
	write(metadataTopic+"-0/00000000000000000000.log", batch)
	return dir
}

func kraftText(s string) []byte { return append(binary.AppendUvarint(nil, uint64(len(s)+1)), s...) }

// kraftTopic is a topic in the metadata log, and its segment.bytes.
func kraftTopic(name string, id protocol.UUID, segmentBytes string) [][]byte {
	return [][]byte{
		slices.Concat([]byte{1, 2, 0}, kraftText(name), id[:], []byte{0}),
		slices.Concat([]byte{1, 4, 0, 2}, kraftText(name), kraftText("segment.bytes"), kraftText(segmentBytes), []byte{0}),
	}
}

// TestTierImportOfSeveral: which of several metadata logs counts, which of two topics of one name, and what is refused.
func TestTierImportOfSeveral(t *testing.T) {
	old, now := protocol.NewUUID(), protocol.NewUUID()
	removed := slices.Concat([]byte{1, 9, 0}, old[:], []byte{0})
	before := kraftTopic("t", old, "1048576")
	after := slices.Concat(before, [][]byte{removed}, kraftTopic("t", now, "2097152"))
	behind := kafkaDir(t, "c", map[string]protocol.UUID{"t-0": old, "t-1": old}, 1, before...)
	ahead := kafkaDir(t, "c", map[string]protocol.UUID{"t-0": now}, 1, after...)
	elected := kafkaDir(t, "c", map[string]protocol.UUID{"u-0": now}, 2, before...) // shorter, but at a later epoch
	silent := kafkaDir(t, "c", map[string]protocol.UUID{"t-0": now}, 0)
	foreign := kafkaDir(t, "other", nil, 0)
	known, _, err := config.Load(config.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dirs []string
		size string // segment.bytes of t
		want string // partitions, each with the places of its directories, or what the error says
	}{
		"the newer one last":        {[]string{behind, ahead}, "2097152", "t-0[1]"},
		"the newer one first":       {[]string{ahead, behind}, "2097152", "t-0[0]"},
		"a later leader epoch":      {[]string{ahead, behind, elected}, "1048576", "t-0[1] t-1[1] u-0[2]"},
		"one has no metadata":       {[]string{behind, silent, ahead}, "2097152", "t-0[1 2]"},
		"one log, behind":           {[]string{behind, silent}, "1048576", "t-0[0] t-1[0]"},
		"several, and no log":       {[]string{silent, kafkaDir(t, "c", map[string]protocol.UUID{"t-3": old}, 0)}, "", "several topics called t"},
		"two clusters":              {[]string{behind, foreign}, "", "of cluster other"},
		"a copy without cluster id": {[]string{kafkaDir(t, "", nil, 0), behind}, "1048576", "t-0[1] t-1[1]"},
	} {
		i := &importing{from: c.dirs, configs: true, known: known, dropped: map[string]map[string]string{}}
		i.im.Configs = map[string]string{}
		for _, from := range c.dirs {
			d, err := commitlog.OpenForeign(from)
			if err != nil {
				t.Fatal(err)
			}
			i.dirs = append(i.dirs, d)
		}
		var found map[commitlog.ForeignPartition][]*commitlog.ForeignLogDir
		err := i.oneCluster()
		if err == nil {
			err = i.readConfigs()
		}
		if err == nil {
			found, err = i.replicas()
		}
		if err != nil {
			if c.size != "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var got []string
		for p, dirs := range maps.All(found) {
			var at []int
			for _, d := range dirs {
				at = append(at, slices.Index(i.dirs, d))
			}
			got = append(got, fmt.Sprintf("%s-%d%v", p.Topic, p.Partition, at))
		}
		slices.Sort(got)
		if s := strings.Join(got, " "); s != c.want || i.im.TopicConfigs["t"]["segment.bytes"] != c.size {
			t.Errorf("%s: %s, configs %v", name, s, i.im.TopicConfigs)
		}
	}
}
