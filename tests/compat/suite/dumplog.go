package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"varve/protocol"
	"varve/tests/kafka"
	"varve/tiering"
)

const (
	dumpFilesMax    = 400 // files given to one run of the tool
	settleWaitMax   = 60 * time.Second
	sanity          = "--index-sanity-check"
	dirTrailerBytes = 36 // a dir tier keeps an object in a file with a trailer (tiering/objstore/dirformat.go)
)

// complaints are what DumpLogSegments prints, with exit code 0, about a file that is not as it must be. Of offsets that are not
// consecutive it also names the first of each file that does not begin at 0, as following -1.
var complaints = regexp.MustCompile(`(?m)^(.*(isvalid: false|Mismatches in|Found timestamp mismatch|Found out of order|invalid bytes at the end|` +
	`Exception|Index corruption|The indexed offset .* not found).*|\s+\d+ is followed by \d+)$`)

// dumpLog lets Apache Kafka's tool read every file that the broker, and those of single cells, wrote: batches and records one
// by one, indexes for sanity and against their logs, and, where there is a tier, the log bodies of a topic's objects.
func dumpLog(ctx context.Context, e *Env) error {
	if err := sealSome(ctx, e); err != nil {
		return err
	}
	own, err := filepath.Glob(filepath.Join(e.Broker.Data+ownSuffix, "*", "log"))
	if err != nil {
		return err
	}
	byKind, err := filesByKind(append(own, e.Broker.Logs)...)
	if err != nil {
		return err
	}
	var sealed []string
	for _, f := range withoutActive(byKind[".log"]) {
		if strings.Contains(f, e.Name+"-") {
			sealed = append(sealed, f)
		}
	}
	if len(sealed) < 3 {
		return fmt.Errorf("%d segments of %s are sealed", len(sealed), e.Name)
	}
	if err := dumpDamaged(ctx, e, sealed[0]); err != nil {
		return err
	}
	if err := dumpFiles(ctx, e, byKind[".log"], "--deep-iteration"); err != nil {
		return err
	}
	for _, kind := range []string{".index", ".timeindex"} {
		if e.Broker.Preallocates {
			byKind[kind] = withoutActive(byKind[kind])
		}
		if err := errors.Join(dumpFiles(ctx, e, byKind[kind], sanity), dumpFiles(ctx, e, byKind[kind], "--verify-index-only")); err != nil {
			return err
		}
	}
	for _, kind := range []string{".snapshot", ".txnindex"} {
		if err := dumpFiles(ctx, e, byKind[kind]); err != nil {
			return err
		}
	}
	if e.Broker.Tier == "" {
		return nil
	}
	return dumpTier(ctx, e)
}

// dumpDamaged makes sure that the tool complains, and that its complaint is heard, about a byte of a record and of an index.
func dumpDamaged(ctx context.Context, e *Env, log string) error {
	index := strings.TrimSuffix(log, ".log") + ".index"
	bytesOf := func(file string) []byte {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil
		}
		return text
	}
	body, entries := bytesOf(log), bytesOf(index)
	if len(body) < 1000 || len(entries) < 16 {
		return fmt.Errorf("%s has %d bytes, its index %d", log, len(body), len(entries))
	}
	for name, flip := range map[string]func(){"log": func() { body[200] ^= 1 }, "index": func() { entries[15] ^= 1 }} {
		dir := filepath.Join(e.Dir, "damaged-"+name)
		body, entries = bytesOf(log), bytesOf(index)
		flip()
		copied, copiedIndex := filepath.Join(dir, filepath.Base(log)), filepath.Join(dir, filepath.Base(index))
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(copied, body, 0o600), os.WriteFile(copiedIndex, entries, 0o600)); err != nil {
			return err
		}
		file, how := copied, "--deep-iteration"
		if name == "index" {
			file, how = copiedIndex, "--verify-index-only"
		}
		if dumpFiles(ctx, e, []string{file}, how) == nil {
			return fmt.Errorf("DumpLogSegments %s says nothing about a damaged %s", how, name)
		}
	}
	return nil
}

// sealSome writes a topic of small segments, so that several are sealed: plain, then compressed batches.
func sealSome(ctx context.Context, e *Env) error {
	size := "1048576"
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.Lz4Compression()} {
		c, err := kgo.NewClient(kgo.SeedBrokers(e.Broker.Addr), kgo.DefaultProduceTopic(e.Name), kgo.ProducerBatchCompression(codec),
			kgo.ProducerBatchMaxBytes(100<<10))
		if err != nil {
			return err
		}
		defer c.Close()
		if i == 0 {
			if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, map[string]*string{"segment.bytes": &size}, e.Name); err != nil {
				return err
			}
		}
		value := []byte(strings.Repeat("settled layers of clay and silt. ", 30))
		for range 3000 {
			c.Produce(ctx, &kgo.Record{Key: []byte("k"), Value: value, Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}}, nil)
		}
		if err := c.Flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// filesByKind lists the files of all partition folders by their ending; empty ones hold nothing to read.
func filesByKind(logs ...string) (map[string][]string, error) {
	byKind := map[string][]string{}
	visit := func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // retention or a deleted topic
		}
		if err != nil {
			return err
		}
		// Both keep their metadata beside the partitions: Kafka a log, varve a hidden folder.
		if d.IsDir() && (strings.HasPrefix(d.Name(), "__cluster_metadata") || strings.HasPrefix(d.Name(), ".") || strings.HasSuffix(d.Name(), "-delete")) {
			return fs.SkipDir
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			byKind[filepath.Ext(path)] = append(byKind[filepath.Ext(path)], path)
		}
		return nil
	}
	for _, top := range logs {
		if err := filepath.WalkDir(top, visit); err != nil {
			return nil, err
		}
	}
	return byKind, nil
}

// withoutActive leaves out each folder's last file: Kafka preallocates the active indexes, and its tool fails on their zeros.
func withoutActive(files []string) []string {
	last := map[string]string{}
	for _, f := range files {
		last[filepath.Dir(f)] = max(last[filepath.Dir(f)], f)
	}
	return slices.DeleteFunc(slices.Clone(files), func(f string) bool { return last[filepath.Dir(f)] == f })
}

func dumpFiles(ctx context.Context, e *Env, files []string, how ...string) error {
	for chunk := range slices.Chunk(files, dumpFilesMax) {
		args := append([]string{"--files", strings.Join(chunk, ",")}, how...)
		dump := kafka.Tool(ctx, kafka.Jars(), tools+"DumpLogSegments", args...)
		// It complains on stderr.
		out, err := run(exec.CommandContext(ctx, "sh", append([]string{"-c", `exec "$@" 2>&1`, "sh"}, dump.Args...)...), e, "")
		if err != nil {
			return err
		}
		if bad := complaints.FindAllString(out, 5); bad != nil {
			return fmt.Errorf("DumpLogSegments %v over %d files:\n%s", how, len(chunk), strings.Join(bad, "\n"))
		}
		if passed := strings.Count(out, "passed sanity check"); slices.Contains(how, sanity) && passed != len(chunk) {
			return fmt.Errorf("%d of %d files passed the sanity check:\n%s", passed, len(chunk), tailOf(out, 20))
		}
	}
	return nil
}

// dumpTier waits until two segments of the topic have settled and cuts the log bodies out of their objects.
func dumpTier(ctx context.Context, e *Env) error {
	topic, err := topicID(ctx, e)
	if err != nil {
		return err
	}
	until := time.Now().Add(settleWaitMax)
	for {
		objects, err := findObjects(e.Broker.Tier, topic)
		if err != nil {
			return err
		}
		if len(objects) >= 2 {
			for _, o := range objects {
				err = errors.Join(err, dumpObject(ctx, e, o))
			}
			return err
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return fmt.Errorf("no two objects of topic %s below %s within %s", topic, e.Broker.Tier, settleWaitMax)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func topicID(ctx context.Context, e *Env) (string, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(e.Broker.Addr))
	if err != nil {
		return "", err
	}
	defer c.Close()
	topics, err := kadm.NewClient(c).ListTopics(ctx, e.Name)
	if err != nil {
		return "", err
	}
	return protocol.UUID(topics[e.Name].ID).String(), nil
}

func findObjects(tier, topic string) (found []string, err error) {
	err = filepath.WalkDir(tier, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".seg.obj") && strings.Contains(path, topic) {
			found = append(found, path)
		}
		return err
	})
	return found, err
}

func dumpObject(ctx context.Context, e *Env, object string) error {
	f, err := os.Open(object)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	seg, err := tiering.OpenSegment(f, info.Size()-dirTrailerBytes)
	if err != nil {
		return err
	}
	log := filepath.Join(e.Dir, filepath.Base(object)[:20]+".log") // an object is named after its first offset
	out, err := os.Create(log)
	if err != nil {
		return err
	}
	if err := errors.Join(seg.WriteLog(out), out.Close()); err != nil {
		return err
	}
	return dumpFiles(ctx, e, []string{log}, "--deep-iteration")
}
