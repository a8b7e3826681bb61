package objstore

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// List implements Store. It holds the names of one folder per level in memory.
func (d *Dir) List(ctx context.Context, prefix, startAfter string, fn func(ObjectInfo) bool) error {
	// Whole parts of the prefix lead straight to one folder.
	keyPrefix := prefix[:strings.LastIndexByte(prefix, '/')+1]
	folder := d.root
	if keyPrefix != "" {
		if ValidateKey(strings.TrimSuffix(keyPrefix, "/")) != nil {
			return ctx.Err() // no key begins like that
		}
		folder = d.path(folderPath(strings.TrimSuffix(keyPrefix, "/")))
	}
	w := &dirWalk{d: d, ctx: ctx, prefix: prefix, startAfter: startAfter, fn: fn}
	_, err := w.folder(folder, keyPrefix)
	return err
}

type dirWalk struct {
	d          *Dir
	ctx        context.Context
	prefix     string
	startAfter string
	fn         func(ObjectInfo) bool
}

// folder lists one folder whose keys begin with keyPrefix; more is false when fn
// wants no more.
func (w *dirWalk) folder(folder, keyPrefix string) (more bool, err error) {
	if err := w.ctx.Err(); err != nil {
		return false, err
	}
	names, err := w.d.fs.List(folder)
	if err != nil {
		if info, serr := w.d.fs.Stat(folder); errors.Is(serr, fs.ErrNotExist) || (serr == nil && !info.IsDir()) {
			return true, nil // pruned meanwhile, or a stranger's file
		}
		return false, dirError("list", folder, err)
	}
	entries := make([]dirEntry, 0, len(names))
	for _, name := range names {
		if e, ok := parseEntry(name); ok && w.wanted(keyPrefix+e.order, e.isDir) {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b dirEntry) int { return strings.Compare(a.order, b.order) })
	for _, e := range entries {
		more, err := w.entry(folder, keyPrefix, e)
		if err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// wanted says whether key, or some key below the folder that key stands for, is to be listed.
func (w *dirWalk) wanted(key string, isDir bool) bool {
	if !isDir {
		return strings.HasPrefix(key, w.prefix) && key > w.startAfter
	}
	below := strings.HasPrefix(key, w.prefix) || strings.HasPrefix(w.prefix, key)
	return below && (key > w.startAfter || strings.HasPrefix(w.startAfter, key))
}

func (w *dirWalk) entry(folder, keyPrefix string, e dirEntry) (more bool, err error) {
	name := folder + "/" + e.name
	if e.isDir {
		return w.folder(name, keyPrefix+e.order)
	}
	if err := w.ctx.Err(); err != nil {
		return false, err
	}
	info, err := w.d.fs.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // deleted meanwhile
	}
	if err != nil {
		return false, dirError("list", name, err)
	}
	// A file too short for its trailer is damaged; Head and Get say so.
	size := max(0, info.Size()-trailerBytes)
	return w.fn(ObjectInfo{Key: keyPrefix + e.part, Size: size, ModTime: info.ModTime()}), nil
}
