package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"

	"varve/broker/commitlog"
	"varve/broker/config"
	"varve/tiering"
	"varve/tiering/objstore"
)

func tierImportCommand() *command {
	return &command{
		name: "import", args: "--from LOG_DIR --id ID [URL] [--topic GLOB] [--rename OLD=NEW]... [--config KEY=VALUE]... [--dry-run] [--accept-loss] [--format text|json]", run: tierImport,
		summary: "Put the partitions of a stopped Apache Kafka broker's log directory into a tier, offsets and batches as they are, nothing produced again. " +
			"They go into a folder of the bucket with the name ID; `varve tier restore --cluster ID` then makes a running cluster take them in as topics. " +
			"The log directory is only read. An import that was cut off goes on where it stopped when it is started again; directories of several brokers may go into the same ID.",
		notes: []string{
			"what is taken\tall committed batches of closed transactions, of the active segment too",
			"what is not\tinternal topics (__consumer_offsets ...); topic configs, which are not in a log directory: name them with --config",
		},
		examples: []string{
			"varve tier import --from /var/lib/kafka-logs --id from-kafka --dry-run",
			"varve tier import --from /var/lib/kafka-logs --id from-kafka 's3://bucket/prefix?region=eu-central-1' --topic 'orders*' --config retention.ms=-1",
		},
	}
}

// importedLine is one partition as tier import prints it.
type importedLine struct {
	Topic     string `json:"topic"`
	TopicID   string `json:"topicId"`
	Partition int32  `json:"partition"`
	LogStart  int64  `json:"logStart"`
	End       int64  `json:"end"`
	Records   int64  `json:"records"`
	Segments  int    `json:"segments"`
	Bytes     int64  `json:"bytes"`
	Uploaded  int64  `json:"objectsUploaded"`
	LeftOut   int64  `json:"offsetsLeftOut"`
	Missing   int64  `json:"offsetsMissing"`
	Already   bool   `json:"already"`
}

// importing is one run of tier import.
type importing struct {
	c      *call
	im     tiering.Import
	from   string
	glob   string
	rename map[string]string
	dry    bool
	lines  []importedLine
}

func tierImport(c *call) int {
	i := &importing{c: c, rename: map[string]string{}}
	var configs, renames repeated
	c.flags.StringVar(&i.from, "from", "", "the log directory `LOG_DIR` of a stopped broker")
	c.flags.StringVar(&i.im.ID, "id", "", "name of the folder in the bucket: letters, digits, - and _")
	c.flags.StringVar(&i.glob, "topic", "", "only topics that match `GLOB`")
	c.flags.Var(&renames, "rename", "import the topic OLD as NEW (`OLD=NEW`)")
	c.flags.Var(&configs, "config", "config of the topics (`KEY=VALUE`)")
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
	cfg, _, err := config.Load(config.LoadOptions{})
	if err == nil {
		err = cfg.ValidateTopic(i.im.Configs)
	}
	if err != nil {
		return "--config: " + err.Error()
	}
	_, err = path.Match(i.glob, "")
	switch {
	case i.from == "":
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
	dir, err := commitlog.OpenForeign(i.from)
	if err != nil {
		return err
	}
	if !i.dry {
		if err := i.im.Open(ctx); err != nil {
			return err
		}
	}
	for _, p := range dir.Partitions {
		if ok, _ := path.Match(i.glob, p.Topic); strings.HasPrefix(p.Topic, "__") || !ok && i.glob != "" {
			continue
		}
		name := p.Topic
		if to := i.rename[name]; to != "" {
			name = to
		}
		var done tiering.ImportedPartition
		if i.dry {
			done, err = i.im.Survey(dir, p, name)
		} else {
			done, err = i.im.Partition(ctx, dir, p, name)
		}
		if err != nil {
			return fmt.Errorf("%s-%d: %w", p.Topic, p.Partition, err)
		}
		i.lines = append(i.lines, importedLine{done.Topic, done.TopicID.String(), done.Partition, done.LogStart, done.End, done.Records, done.Segments, done.Bytes,
			done.UploadedObjects, done.LeftOut, done.Missing, done.Already})
	}
	if len(i.lines) == 0 {
		return errors.New("no partition of " + i.from + " is to be imported: check --from and --topic")
	}
	return nil
}

func (i *importing) print() {
	if len(i.lines) == 0 {
		return
	}
	t := newTable(i.c.stdout, "TOPIC", ">PARTITION", ">START", ">END", ">RECORDS", ">SEGMENTS", ">BYTES", "")
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
		t.row(l.Topic, l.Partition, l.LogStart, l.End, count(l.Records), l.Segments, size(l.Bytes), note)
	}
	t.flush()
	if !i.dry {
		fmt.Fprintf(i.c.stdout, "\nnext: varve tier restore --cluster %s\n", i.im.ID)
	}
}
