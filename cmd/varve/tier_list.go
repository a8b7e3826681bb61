package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"varve/broker/config"
	"varve/tiering"
	"varve/tiering/objstore"
)

func tierListCommand() *command {
	return &command{
		name: "ls", args: "[URL] [--under PREFIX] [--summary] [--format text|json]", run: tierList,
		summary: "List the objects of a tier with what their keys say, and totals. Needs no cluster and changes nothing. " +
			"Without a URL: the tier that a server started here with the same environment would use.",
		examples: []string{
			"varve tier ls",
			"varve tier ls 's3://bucket/prefix?region=eu-central-1' --summary",
			"varve tier ls dir:///var/lib/varve/tier --format json",
		},
	}
}

// listedObject is one object of a tier. The fields from Topic on are there for segments.
type listedObject struct {
	Key          string `json:"key"`
	Bytes        int64  `json:"bytes"`
	Modified     string `json:"modified,omitempty"`
	Kind         string `json:"kind"` // segment, journal, snapshot, report, owner or other
	Cluster      string `json:"cluster,omitempty"`
	TopicID      string `json:"topicId,omitempty"`
	Partition    *int32 `json:"partition,omitempty"`
	Base         int64  `json:"base,omitempty"`
	Next         int64  `json:"next,omitempty"`
	MaxTimestamp string `json:"maxTimestamp,omitempty"`
	LeaderEpoch  int32  `json:"leaderEpoch,omitempty"`
	Generation   uint32 `json:"generation,omitempty"`
	SegmentID    string `json:"segmentId,omitempty"`
}

func tierList(c *call) int {
	under := c.flags.String("under", "", "only keys that begin with `PREFIX`")
	summary := c.flags.Bool("summary", false, "only totals")
	format := c.format()
	args, code, done := c.parse(0, 1)
	if done {
		return code
	}
	if c.badFormat(*format) {
		return c.wrong("--format is text or json")
	}
	store, prefix, code := c.openTier(args)
	if store == nil {
		return code
	}
	if prefix != "" {
		prefix += "/"
	}
	ls := &lister{c: c, quiet: *summary, asJSON: *format == "json", topics: map[string]*topicTotal{}}
	err := store.List(c.ctx, prefix+*under, "", ls.object)
	if err = errors.Join(err, ls.err); err != nil {
		return c.storeFailed(err)
	}
	return ls.end()
}

// openTier opens the store of the tier URL in args, or of the configuration. A nil store comes with the exit code.
func (c *call) openTier(args []string) (objstore.Store, string, int) {
	raw := ""
	if len(args) > 0 {
		raw = args[0]
	} else {
		cfg, _, err := config.Load(config.LoadOptions{Env: c.env})
		if err != nil {
			printConfigErrors(c.stderr, err)
			return nil, "", exitUsage
		}
		if raw = cfg.TierURL(); raw == "" {
			return nil, "", c.wrong("there is no tier in this environment; name its URL")
		}
	}
	u, err := objstore.ParseURL(raw)
	if err != nil {
		return nil, "", c.wrong("%v", err)
	}
	if u.Scheme == "dir" {
		if _, err := os.Stat(u.Path); err != nil {
			return nil, "", c.storeFailed(fmt.Errorf("%w: name the folder of the tier, as dir:///path", err))
		}
	}
	store, err := objstore.Open(c.ctx, raw, objstore.OpenOptions{})
	if err != nil {
		return nil, "", c.storeFailed(err)
	}
	return store, u.Prefix, exitOK
}

// storeFailed tells a store that refuses from one that is not there.
func (c *call) storeFailed(err error) int {
	c.failed("%v", err)
	if errors.Is(err, objstore.ErrForbidden) || errors.Is(err, objstore.ErrBucketMissing) || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return exitStore
	}
	return exitRuntime
}

type topicTotal struct {
	partitions map[int32]bool
	objects    int64
	bytes      int64
	offsets    int64
}

// lister prints objects as they come, so that a large bucket needs no memory but for its topics.
type lister struct {
	c       *call
	quiet   bool
	asJSON  bool
	table   *table
	topics  map[string]*topicTotal
	others  map[string]*topicTotal // by kind
	objects int64
	err     error
}

const maxTableRows = 500 // columns are aligned over so many objects at a time

func (l *lister) object(o objstore.ObjectInfo) bool {
	row := decodeKey(o)
	l.add(row)
	switch {
	case l.quiet:
	case l.asJSON:
		line, err := json.Marshal(row)
		if err == nil {
			_, err = fmt.Fprintf(l.c.stdout, "%s\n", line)
		}
		l.err = err
	default:
		if l.table == nil {
			l.table = newTable(l.c.stdout, "TOPIC ID", ">PARTITION", ">BASE", ">NEXT", ">BYTES", "LAST RECORD", "KEY")
		}
		if row.Partition != nil {
			l.table.row(row.TopicID, *row.Partition, row.Base, row.Next, row.Bytes, row.MaxTimestamp, row.Key)
		} else {
			l.table.row(row.Kind, "", "", "", row.Bytes, "", row.Key)
		}
		if len(l.table.rows) > maxTableRows {
			l.table.flush()
			l.table = nil
		}
	}
	return l.err == nil && l.c.ctx.Err() == nil
}

func (l *lister) add(row listedObject) {
	l.objects++
	if l.others == nil {
		l.others = map[string]*topicTotal{}
	}
	totals, key := l.others, row.Kind
	if row.Partition != nil {
		totals, key = l.topics, row.Cluster+" "+row.TopicID
	}
	t := totals[key]
	if t == nil {
		t = &topicTotal{partitions: map[int32]bool{}}
		totals[key] = t
	}
	t.objects++
	t.bytes += row.Bytes
	t.offsets += row.Next - row.Base
	if row.Partition != nil {
		t.partitions[*row.Partition] = true
	}
}

// decodeKey reads what a key says.
func decodeKey(o objstore.ObjectInfo) listedObject {
	row := listedObject{Key: o.Key, Bytes: o.Size, Kind: "other"}
	if !o.ModTime.IsZero() {
		row.Modified = o.ModTime.UTC().Format(time.RFC3339)
	}
	if k, err := tiering.ParseSegmentKey(o.Key); err == nil {
		row.Kind, row.Cluster, row.TopicID, row.Partition = "segment", k.ClusterID, k.TopicID.String(), &k.Partition
		row.Base, row.Next, row.LeaderEpoch, row.Generation, row.SegmentID = k.Base, k.Next, k.LeaderEpoch, k.Generation, k.ID.String()
		if k.MaxTimestamp >= 0 {
			row.MaxTimestamp = time.UnixMilli(k.MaxTimestamp).UTC().Format("2006-01-02T15:04:05.000Z")
		}
		return row
	}
	switch {
	case strings.Contains(o.Key, "/meta/journal/"):
		row.Kind = "journal"
	case strings.Contains(o.Key, "/meta/snapshot/"):
		row.Kind = "snapshot"
	case strings.Contains(o.Key, "/meta/snapshot/"):
		row.Kind = "snapshot"
	case strings.Contains(o.Key, "/meta/restore/"):
		row.Kind = "report"
	case strings.HasSuffix(o.Key, "/owner"):
		row.Kind = "owner"
	}
	return row
}

// listedTotal is one line of the totals.
type listedTotal struct {
	Cluster    string `json:"cluster,omitempty"`
	TopicID    string `json:"topicId,omitempty"`
	Kind       string `json:"kind"`
	Partitions int    `json:"partitions,omitempty"`
	Objects    int64  `json:"objects"`
	Bytes      int64  `json:"bytes"`
	Offsets    int64  `json:"offsets,omitempty"`
}

func (l *lister) totals() (rows []listedTotal) {
	for _, key := range slices.SortedFunc(maps.Keys(l.topics), cmp.Compare) {
		cluster, topic, _ := strings.Cut(key, " ")
		t := l.topics[key]
		rows = append(rows, listedTotal{cluster, topic, "segment", len(t.partitions), t.objects, t.bytes, t.offsets})
	}
	for _, kind := range slices.SortedFunc(maps.Keys(l.others), cmp.Compare) {
		t := l.others[kind]
		rows = append(rows, listedTotal{Kind: kind, Objects: t.objects, Bytes: t.bytes})
	}
	return rows
}

func (l *lister) end() int {
	if l.table != nil {
		l.table.flush()
	}
	rows := l.totals()
	if l.asJSON {
		if !l.quiet {
			return exitOK
		}
		return l.c.printJSON(rows)
	}
	if l.objects == 0 {
		fmt.Fprintln(l.c.stdout, "no objects")
		return exitOK
	}
	if !l.quiet {
		fmt.Fprintln(l.c.stdout)
	}
	t := newTable(l.c.stdout, "CLUSTER", "TOPIC ID", "KIND", ">PARTITIONS", ">OBJECTS", ">BYTES", ">OFFSETS")
	var bytes int64
	for _, r := range rows {
		partitions, offsets := "", ""
		if r.Kind == "segment" {
			partitions, offsets = fmt.Sprint(r.Partitions), count(r.Offsets)
		}
		t.row(r.Cluster, r.TopicID, r.Kind, partitions, count(r.Objects), size(r.Bytes), offsets)
		bytes += r.Bytes
	}
	t.row("all", "", "", "", count(l.objects), size(bytes), "")
	t.flush()
	return exitOK
}
