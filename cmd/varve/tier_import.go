package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"varve/broker/commitlog"
	"varve/broker/config"
	"varve/broker/group"
	"varve/metastore/metapb"
	"varve/protocol"
	"varve/protocol/record"
	"varve/tiering"
	"varve/tiering/objstore"
)

func tierImportCommand() *command {
	return &command{
		name: "import", args: "--from LOG_DIR... --id ID [URL] [--topic GLOB] [--rename OLD=NEW]... [--config KEY=VALUE]... [--topic-configs=false] [--groups=false] [--dry-run] [--accept-loss] [--format text|json]", run: tierImport,
		summary: "Put the partitions of a stopped Apache Kafka broker's log directory into a tier, offsets and batches as they are, nothing produced again. " +
			"They go into a folder of the bucket with the name ID; `varve tier restore --cluster ID` then makes a running cluster take them in as topics. " +
			"The log directory is only read. An import that was cut off goes on where it stopped when it is started again; directories of several brokers may go into the same ID.",
		notes: []string{
			"what is taken\tall committed batches of closed transactions, of the active segment too",
			"\ttopic configs, from __cluster_metadata-0, the most recent that one of the directories has; --config goes before them",
			"\toffsets of consumer groups, from __consumer_offsets; the restore clamps them to what the partitions hold",
			"what is not\tother internal topics, group memberships, ACLs, quotas, and configs that mean nothing here: they are named",
			"several directories\t--from may be repeated: the directories of one broker, or of several. Of a partition that is in two the fuller replica is taken",
			"\tdirectories of several clusters, or of a deleted topic and of a new one with its name, are refused where nothing tells which is meant",
		},
		examples: []string{
			"varve tier import --from /var/lib/kafka-logs --id from-kafka --dry-run",
			"varve tier import --from /var/lib/kafka-logs --id from-kafka 's3://bucket/prefix?region=eu-central-1' --topic 'orders*' --config retention.ms=-1",
		},
	}
}

// importedLine is one partition as tier import prints it.
type importedLine struct {
	Topic     string            `json:"topic"`
	TopicID   string            `json:"topicId"`
	Partition int32             `json:"partition"`
	LogStart  int64             `json:"logStart"`
	End       int64             `json:"end"`
	Records   int64             `json:"records"`
	Segments  int               `json:"segments"`
	Bytes     int64             `json:"bytes"`
	Uploaded  int64             `json:"objectsUploaded"`
	LeftOut   int64             `json:"offsetsLeftOut"`
	Missing   int64             `json:"offsetsMissing"`
	Already   bool              `json:"already"`
	Groups    int               `json:"groupOffsets"` // committed offsets of groups for it
	Configs   map[string]string `json:"configs"`      // of its topic
	Dropped   map[string]string `json:"configsLeftOut,omitempty"`
}

// importing is one run of tier import.
type importing struct {
	c       *call
	im      tiering.Import
	from    repeated
	dirs    []*commitlog.ForeignLogDir
	meta    tiering.KafkaConfigs // as the most recent of the metadata logs has it
	glob    string
	rename  map[string]string
	dry     bool
	configs bool // those of the topics are taken
	groups  bool // offsets of groups are taken
	known   *config.Config
	dropped map[string]map[string]string // configs that mean nothing here, by topic
	lines   []importedLine
}

func tierImport(c *call) int {
	i := &importing{c: c, rename: map[string]string{}, dropped: map[string]map[string]string{}}
	var configs, renames repeated
	c.flags.Var(&i.from, "from", "a log directory `LOG_DIR` of a stopped broker")
	c.flags.StringVar(&i.im.ID, "id", "", "name of the folder in the bucket: letters, digits, - and _")
	c.flags.StringVar(&i.glob, "topic", "", "only topics that match `GLOB`")
	c.flags.Var(&renames, "rename", "import the topic OLD as NEW (`OLD=NEW`)")
	c.flags.Var(&configs, "config", "config of the topics (`KEY=VALUE`)")
	c.flags.BoolVar(&i.configs, "topic-configs", true, "take the configs that the topics have")
	c.flags.BoolVar(&i.groups, "groups", true, "take the offsets that groups have committed")
	c.flags.BoolVar(&i.dry, "dry-run", false, "only say what would be taken")
	c.flags.BoolVar(&i.im.Lossy, "accept-loss", false, "take partitions too whose last committed records are missing or damaged")
	c.flags.IntVar(&i.im.Uploads, "uploads", 4, "`N` uploads at once")
	format := c.format()
	args, code, done := c.parse(0, 1)
	if done {
		return code
	}
	if wrong := i.resolve(configs, renames, *format); wrong != "" {
		return c.wrong("%s", wrong)
	}
	var store objstore.Store
	if !i.dry {
		if store, i.im.Prefix, code = c.openTier(args); store == nil {
			return code
		}
		i.im.Store = store
	}
	err := i.run()
	switch {
	case *format == "json":
		code = c.printJSON(append([]importedLine{}, i.lines...))
	default:
		i.print()
	}
	if err != nil {
		return c.storeFailed(err)
	}
	return code
}

func (i *importing) resolve(configs, renames repeated, format string) string {
	i.im.Configs = map[string]string{"remote.storage.enable": "true"}
	for _, kv := range configs {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return fmt.Sprintf("--config %s: not of the form KEY=VALUE", kv)
		}
		i.im.Configs[k] = v
	}
	for _, on := range renames {
		old, name, ok := strings.Cut(on, "=")
		if !ok || old == "" || name == "" {
			return fmt.Sprintf("--rename %s: not of the form OLD=NEW", on)
		}
		i.rename[old] = name
	}
	var err error
	if i.known, _, err = config.Load(config.LoadOptions{}); err == nil {
		err = i.known.ValidateTopic(i.im.Configs)
	}
	if err != nil {
		return "--config: " + err.Error()
	}
	_, err = path.Match(i.glob, "")
	switch {
	case len(i.from) == 0:
		return "something is missing: --from LOG_DIR"
	case i.im.ID == "" && !i.dry:
		return "something is missing: --id ID"
	case err != nil:
		return fmt.Sprintf("--topic %s: %v", i.glob, err)
	case i.im.Uploads < 1 || i.im.Uploads > 64:
		return "--uploads is 1 to 64"
	case i.c.badFormat(format):
		return "--format is text or json"
	}
	return ""
}

func (i *importing) run() error {
	ctx, stop := signal.NotifyContext(i.c.ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, from := range i.from {
		dir, err := commitlog.OpenForeign(from)
		if err != nil {
			return err
		}
		i.dirs = append(i.dirs, dir)
	}
	if err := i.oneCluster(); err != nil {
		return err
	}
	if err := i.readConfigs(); err != nil {
		return err
	}
	found, err := i.replicas()
	if err != nil {
		return err
	}
	offsets, err := i.readOffsets()
	if err != nil {
		return err
	}
	if !i.dry {
		if err := i.im.Open(ctx); err != nil {
			return err
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(found), func(a, b commitlog.ForeignPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	}) {
		dir, err := i.fullest(found[p], p)
		if err == nil {
			err = i.partition(ctx, dir, p, offsets)
		}
		if err != nil {
			return fmt.Errorf("%s-%d: %w", p.Topic, p.Partition, err)
		}
	}
	if len(i.lines) == 0 {
		return errors.New("no partition of " + strings.Join(i.from, ", ") + " is to be imported: check --from and --topic")
	}
	if !i.dry {
		_, err = i.im.Offsets(ctx, offsets)
	}
	return err
}

// oneCluster refuses directories of several clusters: what has one name in two of them is not the same.
func (i *importing) oneCluster() error {
	first := -1
	for at, d := range i.dirs {
		switch {
		case d.ClusterID == "":
		case first < 0:
			first = at
		case d.ClusterID != i.dirs[first].ClusterID:
			return fmt.Errorf("%s is of cluster %s, %s of cluster %s: import them one by one, each with an --id of its own",
				i.from[first], i.dirs[first].ClusterID, i.from[at], d.ClusterID)
		}
	}
	return nil
}

// replicas finds the directories that have each of the partitions. A broker that was away may still have the folder of a topic that was
// deleted, under the name of another one: the metadata log tells which of two is meant.
func (i *importing) replicas() (map[commitlog.ForeignPartition][]*commitlog.ForeignLogDir, error) {
	ids := map[string]map[protocol.UUID]string{} // by topic, and one directory that has it
	for at, dir := range i.dirs {
		for _, p := range dir.Partitions {
			if i.wants(p.Topic) && p.TopicID != (protocol.UUID{}) {
				if ids[p.Topic] == nil {
					ids[p.Topic] = map[protocol.UUID]string{}
				}
				ids[p.Topic][p.TopicID] = i.from[at]
			}
		}
	}
	for topic, all := range ids {
		if id, _ := i.meta.TopicID(topic); len(all) > 1 && all[id] == "" {
			var where []string
			for _, id := range slices.SortedFunc(maps.Keys(all), func(a, b protocol.UUID) int { return cmp.Compare(all[a], all[b]) }) {
				where = append(where, fmt.Sprintf("%s in %s", id, all[id]))
			}
			return nil, fmt.Errorf("there are several topics called %s (%s), and no metadata log that knows which is not deleted: add the newest controller's directory, or leave out those of the deleted one",
				topic, strings.Join(where, ", "))
		}
	}
	found := map[commitlog.ForeignPartition][]*commitlog.ForeignLogDir{}
	for _, dir := range i.dirs {
		for _, p := range dir.Partitions {
			id, _ := i.meta.TopicID(p.Topic)
			if !i.wants(p.Topic) || len(ids[p.Topic]) > 1 && p.TopicID != id {
				continue
			}
			p.TopicID = protocol.UUID{}
			found[p] = append(found[p], dir)
		}
	}
	return found, nil
}

// surveyIndexInterval is of indexes that nobody reads.
const surveyIndexInterval = 4096

// fullest picks the directory whose replica of a partition goes furthest.
func (i *importing) fullest(dirs []*commitlog.ForeignLogDir, p commitlog.ForeignPartition) (best *commitlog.ForeignLogDir, err error) {
	end := int64(-1)
	for _, dir := range dirs {
		if len(dirs) == 1 {
			return dir, nil
		}
		log, err := dir.Log(p, surveyIndexInterval, time.Now().UnixMilli())
		if err != nil {
			return nil, err
		}
		if log.End > end {
			best, end = dir, log.End
		}
	}
	return best, nil
}

// wants reports whether a topic is to be imported.
func (i *importing) wants(topic string) bool {
	ok, _ := path.Match(i.glob, topic)
	return !strings.HasPrefix(topic, "__") && (ok || i.glob == "")
}

// as is the name that a topic gets.
func (i *importing) as(topic string) string { return cmp.Or(i.rename[topic], topic) }

func (i *importing) partition(ctx context.Context, dir *commitlog.ForeignLogDir, p commitlog.ForeignPartition, offsets []*metapb.GroupOffset) (err error) {
	name := i.as(p.Topic)
	var done tiering.ImportedPartition
	if i.dry {
		done, err = i.im.Survey(dir, p, name)
	} else {
		done, err = i.im.Partition(ctx, dir, p, name)
	}
	if err != nil {
		return err
	}
	l := importedLine{Topic: done.Topic, TopicID: done.TopicID.String(), Partition: done.Partition, LogStart: done.LogStart, End: done.End,
		Records: done.Records, Segments: done.Segments, Bytes: done.Bytes, Uploaded: done.UploadedObjects, LeftOut: done.LeftOut,
		Missing: done.Missing, Already: done.Already, Configs: i.im.Configs, Dropped: i.dropped[name]}
	if own, ok := i.im.TopicConfigs[name]; ok {
		l.Configs = own
	}
	for _, o := range offsets {
		if o.Topic == name && o.Partition == p.Partition {
			l.Groups++
		}
	}
	i.lines = append(i.lines, l)
	return nil
}

// readConfigs takes the configs of the topics from the metadata log, those that mean something here. Of several logs that one counts
// which has come furthest, by leader epoch and offset: it holds all that was committed in the others.
func (i *importing) readConfigs() error {
	var epoch int32
	var end int64
	for _, dir := range i.dirs {
		at := slices.IndexFunc(dir.Partitions, func(p commitlog.ForeignPartition) bool { return p.Topic == metadataTopic })
		if at < 0 || !i.configs {
			continue
		}
		var all tiering.KafkaConfigs
		newest := int32(0)
		through, err := dir.Batches(dir.Partitions[at], func(b record.Batch) error {
			newest = b.LeaderEpoch()
			return all.Take(b)
		})
		if err != nil {
			return fmt.Errorf("topic configs: %w", err)
		}
		if i.im.TopicConfigs == nil || cmp.Or(cmp.Compare(newest, epoch), cmp.Compare(through, end)) > 0 {
			i.im.TopicConfigs, i.meta, epoch, end = map[string]map[string]string{}, all, newest, through
		}
	}
	if i.im.TopicConfigs == nil {
		return nil
	}
	for _, d := range i.dirs {
		for _, p := range d.Partitions {
			if i.wants(p.Topic) {
				i.topicConfigs(i.as(p.Topic), i.meta.Topic(p.Topic))
			}
		}
	}
	return nil
}

// metadataTopic is where KRaft keeps its log.
const metadataTopic = "__cluster_metadata"

// topicConfigs puts together what a topic gets: its own configs as far as they mean something here, and --config before them.
func (i *importing) topicConfigs(topic string, own map[string]string) {
	took, dropped := maps.Clone(i.im.Configs), map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(own)) {
		if _, given := i.im.Configs[k]; given {
			continue
		}
		took[k] = own[k]
		if i.known.ValidateTopic(took) != nil {
			delete(took, k)
			dropped[k] = own[k]
		}
	}
	i.im.TopicConfigs[topic], i.dropped[topic] = took, dropped
}

// readOffsets gathers the offsets of all groups for what is imported.
func (i *importing) readOffsets() (out []*metapb.GroupOffset, err error) {
	var all group.ForeignOffsets
	for _, dir := range i.dirs {
		for _, p := range dir.Partitions {
			if p.Topic != group.OffsetsTopic || !i.groups {
				continue
			}
			all.StartPartition(p.Partition)
			if _, err := dir.Batches(p, all.Take); err != nil {
				return nil, fmt.Errorf("%s-%d: %w; --groups=false leaves the offsets of groups out", p.Topic, p.Partition, err)
			}
		}
	}
	for _, o := range all.Offsets() {
		if i.wants(o.Topic) {
			o.Topic = i.as(o.Topic)
			out = append(out, o)
		}
	}
	return out, nil
}

func (i *importing) print() {
	if len(i.lines) == 0 {
		return
	}
	t := newTable(i.c.stdout, "TOPIC", ">PARTITION", ">START", ">END", ">RECORDS", ">SEGMENTS", ">BYTES", ">GROUPS", "")
	for _, l := range i.lines {
		note := ""
		switch {
		case l.Already:
			note = "imported before"
		case l.Missing > 0:
			note = fmt.Sprintf("%d committed offsets are missing", l.Missing)
		case l.LeftOut > 0:
			note = fmt.Sprintf("%d offsets left out: not committed, or in open transactions", l.LeftOut)
		}
		t.row(l.Topic, l.Partition, l.LogStart, l.End, count(l.Records), l.Segments, size(l.Bytes), l.Groups, note)
	}
	t.flush()
	for _, topic := range slices.Sorted(maps.Keys(i.dropped)) {
		for _, k := range slices.Sorted(maps.Keys(i.dropped[topic])) {
			fmt.Fprintf(i.c.stdout, "left out: config %s=%s of topic %s, which a tiered topic cannot have here\n", k, i.dropped[topic][k], topic)
		}
	}
	if !i.dry {
		fmt.Fprintf(i.c.stdout, "\nnext: varve tier restore --cluster %s\n", i.im.ID)
	}
}
