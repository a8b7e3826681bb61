package metastore

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/protocol"

	"varve/protocol/event"
)

// The metadata folder:
//
//	LOCK            held while open
//	format          the stamp below
//	state           name of the state folder that counts
//	state-000001/   Pebble
//	raft/           raft-wal
//	snapshots/      Raft's snapshots
//
// The stamp is text: the line "varve-metastore", then format=, node.id=, directory.id=, cluster.id=.
const (
	formatVersion = 1
	stampFile     = "format"
	stampMagic    = "varve-metastore"
	pointerFile   = "state"
	statePrefix   = "state-"
)

type stamp struct {
	node      int32
	directory string
	cluster   string
}

type folder struct {
	fs      vfs.FS
	dir     string
	lock    io.Closer
	reserve *reserve
	stamp   stamp
}

// openFolder locks the folder, makes it when it is new, and checks whose it is.
func openFolder(fs vfs.FS, dir string, node int32, cluster string, events event.Sink) (*folder, error) {
	f := &folder{fs: fs, dir: dir, reserve: &reserve{fs: fs, dir: dir, events: events}}
	f.fs = vfs.OnDiskFull(fs, f.reserve.release)
	if err := makeDir(fs, dir); err != nil {
		return nil, err
	}
	var err error
	if f.lock, err = fs.Lock(f.path("LOCK")); err != nil {
		return nil, fmt.Errorf("metadata folder %s is in use: %w", dir, err)
	}
	if err := f.checkStamp(node, cluster); err != nil {
		return nil, errors.Join(err, f.lock.Close())
	}
	f.reserve.fill()
	return f, nil
}

func (f *folder) path(name string) string { return f.fs.PathJoin(f.dir, name) }

func (f *folder) checkStamp(node int32, cluster string) error {
	text, err := f.read(stampFile)
	if errors.Is(err, os.ErrNotExist) {
		f.stamp = stamp{node: node, directory: protocol.NewUUID().String(), cluster: cluster}
		if cluster == "" {
			f.stamp.cluster = protocol.NewUUID().String()
		}
		return f.write(stampFile, fmt.Sprintf("%s\nformat=%d\nnode.id=%d\ndirectory.id=%s\ncluster.id=%s\n",
			stampMagic, formatVersion, f.stamp.node, f.stamp.directory, f.stamp.cluster))
	}
	if err != nil {
		return err
	}
	if f.stamp, err = parseStamp(f.dir, text); err != nil {
		return err
	}
	if f.stamp.node != node {
		return &ForeignError{Dir: f.dir, What: "node id", Have: strconv.Itoa(int(f.stamp.node)), Want: strconv.Itoa(int(node))}
	}
	if cluster != "" && cluster != f.stamp.cluster {
		return &ForeignError{Dir: f.dir, What: "cluster id", Have: f.stamp.cluster, Want: cluster}
	}
	return nil
}

func (f *folder) checkCluster(id string) error {
	if id != f.stamp.cluster {
		return &ForeignError{Dir: f.dir, What: "cluster id", Have: id, Want: f.stamp.cluster}
	}
	return nil
}

func parseStamp(dir, text string) (stamp, error) {
	bad := func(what string) error { return &protocol.CorruptionError{Where: dir + "/" + stampFile, What: what} }
	lines := bufio.NewScanner(strings.NewReader(text))
	if !lines.Scan() || lines.Text() != stampMagic {
		return stamp{}, bad("does not begin with " + stampMagic)
	}
	values := map[string]string{}
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if !ok {
			return stamp{}, bad("line without '='")
		}
		values[key] = value
	}
	format, err := strconv.ParseUint(values["format"], 10, 64)
	if err != nil {
		return stamp{}, bad("format is not a number")
	}
	if format > formatVersion {
		return stamp{}, &NewerError{Dir: dir, What: "format", Have: format, Supported: formatVersion}
	}
	node, err := strconv.ParseInt(values["node.id"], 10, 32)
	if err != nil || values["directory.id"] == "" || values["cluster.id"] == "" {
		return stamp{}, bad("node.id, directory.id or cluster.id is missing")
	}
	return stamp{node: int32(node), directory: values["directory.id"], cluster: values["cluster.id"]}, nil
}

// read returns a small file of the folder.
func (f *folder) read(name string) (string, error) {
	file, err := f.fs.Open(f.path(name))
	if err != nil {
		return "", err
	}
	defer file.Close()
	const maxStampBytes = 64 << 10
	b, err := io.ReadAll(io.LimitReader(file, maxStampBytes))
	return string(b), err
}

// write replaces a small file of the folder: after a crash it is the old one or the new one.
func (f *folder) write(name, text string) error {
	tmp := f.path(name + ".tmp")
	file, err := f.fs.Create(tmp, "metastore")
	if err != nil {
		return err
	}
	_, err = io.WriteString(file, text)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := f.fs.Rename(tmp, f.path(name)); err != nil {
		return err
	}
	return f.syncDir()
}

func (f *folder) syncDir() error { return syncDir(f.fs, f.dir) }

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// makeDir makes a folder and those above it, so that they are still there after a crash.
func makeDir(fs vfs.FS, dir string) error {
	if _, err := fs.Stat(dir); err == nil {
		return nil
	}
	parent := fs.PathDir(dir)
	if parent != dir {
		if err := makeDir(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return syncDir(fs, parent)
}

// stateDir is the name of the state folder that counts. Others are left over from a restore that a crash cut short, before or
// after the switch, and are removed.
func (f *folder) stateDir() (string, error) {
	name, err := f.read(pointerFile)
	if errors.Is(err, os.ErrNotExist) {
		name, err = stateName(1), f.write(pointerFile, stateName(1))
	}
	if err != nil {
		return "", err
	}
	if stateNumber(name) == 0 {
		return "", &protocol.CorruptionError{Where: f.path(pointerFile), What: fmt.Sprintf("names %q", name)}
	}
	all, err := f.fs.List(f.dir)
	if err != nil {
		return "", err
	}
	for _, other := range all {
		if stateNumber(other) > 0 && other != name {
			if err := f.fs.RemoveAll(f.path(other)); err != nil {
				return "", err
			}
		}
	}
	return name, nil
}

// switchState makes another state folder the one that counts.
func (f *folder) switchState(name string) error { return f.write(pointerFile, name) }

func (f *folder) close() error { return f.lock.Close() }

func stateName(n uint64) string { return fmt.Sprintf("%s%06d", statePrefix, n) }

// stateNumber is 0 for what is not a state folder.
func stateNumber(name string) uint64 {
	num, ok := strings.CutPrefix(name, statePrefix)
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(num, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
