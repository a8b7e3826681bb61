package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"varve/protocol"
	"varve/tiering"
)

func dumpCommand() *command {
	return &command{
		name: "dump", args: "FILE... [--deep] [--tier URL]", run: runDump,
		summary: "Print what is in files of a partition folder or in objects of the tier, and check every byte that has a checksum. " +
			"Takes .log, .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint, partition.metadata and .seg files, and objects of a tier's journal and snapshots; with --tier the names are keys in that tier. " +
			"Exits with 1 and names the place when something is damaged.",
		examples: []string{
			"varve dump varve-data/log/hello-0/00000000000000000000.log",
			"varve dump --deep varve-data/log/hello-0/*",
			"varve dump --tier dir:///var/lib/varve/tier KEY",
		},
	}
}

// source is what is dumped: a file or an object.
type source struct {
	name string
	r    io.ReaderAt
	size int64
}

// dumper prints one source after another and counts what is damaged.
type dumper struct {
	c       *call
	deep    bool
	damaged int
}

func (d *dumper) print(format string, args ...any) { fmt.Fprintf(d.c.stdout, format, args...) }

// damage reports something wrong at a place; the dump goes on where it can.
func (d *dumper) damage(name, place, format string, args ...any) {
	d.damaged++
	err := &protocol.CorruptionError{Where: name + " at " + place, What: fmt.Sprintf(format, args...)}
	fmt.Fprintf(d.c.stderr, "%s: %v\n", d.c.path, err)
}

func runDump(c *call) int {
	d := &dumper{c: c}
	c.flags.BoolVar(&d.deep, "deep", false, "print each record, not only each batch")
	tier := c.flags.String("tier", "", "`URL` of the tier whose keys the names are")
	names, code, done := c.parse(1, -1)
	if done {
		return code
	}
	open := openFile
	if *tier != "" {
		store, _, code := c.openTier([]string{*tier})
		if store == nil {
			return code
		}
		open = func(name string) (source, func() error, error) { return openObject(c.ctx, store, name) }
	}
	worst := exitOK
	for _, name := range names {
		src, closeSource, err := open(name)
		if err == nil {
			err = d.dump(src)
			err = errors.Join(err, closeSource())
		}
		if err != nil {
			worst = max(worst, c.dumpFailed(name, err))
		}
	}
	if d.damaged > 0 {
		worst = max(worst, exitRuntime)
	}
	return worst
}

func (c *call) dumpFailed(name string, err error) int {
	var format *tiering.FormatError
	c.failed("%s: %v", name, err)
	if errors.As(err, &format) {
		return exitForeign
	}
	return exitRuntime
}

func openFile(name string) (source, func() error, error) {
	f, err := os.Open(name)
	if err != nil {
		return source{}, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a file")
	}
	if err != nil {
		return source{}, nil, errors.Join(err, f.Close())
	}
	return source{name, f, info.Size()}, f.Close, nil
}

func (d *dumper) dump(src source) error {
	d.print("== %s, %d bytes\n", filepath.ToSlash(src.name), src.size)
	base := filepath.Base(src.name)
	switch ext := filepath.Ext(base); {
	case ext == ".log":
		return d.log(src)
	case ext == ".index":
		return d.offsetIndex(src)
	case ext == ".timeindex":
		return d.timeIndex(src)
	case ext == ".txnindex":
		return d.txnIndex(src)
	case ext == ".snapshot":
		return d.snapshot(src)
	case base == "leader-epoch-checkpoint":
		return d.epochs(src)
	case base == "partition.metadata":
		return d.partitionMetadata(src)
	case ext == ".seg":
		return d.object(src)
	case strings.HasSuffix(base, ".seg.obj"):
		return d.objectFile(src)
	case begins(src, journalMagic):
		return d.journal(src)
	case begins(src, snapshotMagic):
		return d.bucketSnapshot(src)
	}
	return errors.New("its name is not of a kind that can be dumped; see varve dump --help")
}

// readAll reads a source that is small by nature.
func readAll(src source, maxBytes int64) ([]byte, error) {
	if src.size > maxBytes {
		return nil, fmt.Errorf("longer than %d bytes", maxBytes)
	}
	return io.ReadAll(io.NewSectionReader(src.r, 0, src.size))
}
