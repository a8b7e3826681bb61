package tiering

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/tiering/objstore"
)

// The fault matrix: what a store can do wrong, against everything that uses it. Each cell names the requests of the operation that
// meet the fault, or says why there are none. TestFaultMatrix plays all of them over the store in memory; TestFaultMatrixOverDrivers over
// both SDKs and a real server (matrixwire_test.go). matrixops_test.go says what each operation is and when it is done.
//
// A cell arms the fault, lets the operation try and try again, ends the fault, and lets the operation go on by itself. Then:
//   - it is done, without anybody's help;
//   - every record reads, equal byte for byte to what was appended;
//   - the bucket, looked at without the code under test, holds exactly the segments of the metastore, with their sizes;
//   - no row waits in any state, and the journal's outbox is empty.

// strike is where in an operation a fault strikes.
type strike struct {
	name  string
	verb  objstore.Verb
	key   string // a part of the object's key, or of the listed prefix
	skip  int    // requests that go through first
	cache int64  // bytes of the readers' cache on disk
}

// cell is where a fault meets an operation; or, where it cannot, why.
type cell struct {
	at  []strike
	why string
}

func at(spots ...[]strike) cell { return cell{at: slices.Concat(spots...)} }
func notAt(why string) cell     { return cell{why: why} }

const (
	vPut, vGet, vHead, vList, vDelete = objstore.VerbPut, objstore.VerbGet, objstore.VerbHead, objstore.VerbList, objstore.VerbDelete

	tinyCache = 4 * chunkBytes
)

// The requests of each operation.
var (
	ofUpload = []strike{{name: "segment put", verb: vPut, key: ".seg"}}
	ofRead   = []strike{
		{name: "index", verb: vGet, key: ".seg"}, {name: "log", verb: vGet, key: ".seg", skip: 1}, {name: "read-ahead", verb: vGet, key: ".seg", skip: 3},
		{name: "index, cache", verb: vGet, key: ".seg", cache: tinyCache}, {name: "log, cache", verb: vGet, key: ".seg", skip: 1, cache: tinyCache},
		{name: "read-ahead, cache", verb: vGet, key: ".seg", skip: 3, cache: tinyCache},
	}
	ofRemove = []strike{{name: "owner", verb: vGet, key: "owner"}, {name: "journal", verb: vPut, key: "/meta/journal/"}, {name: "delete", verb: vDelete, key: ".seg"}}
	ofMerge  = []strike{
		{name: "get", verb: vGet, key: ".seg"}, {name: "get in the midst", verb: vGet, key: ".seg", skip: 5}, {name: "put", verb: vPut, key: ".seg"},
		{name: "delete of what was merged", verb: vDelete, key: ".seg"},
	}
	ofScrub = []strike{
		{name: "list", verb: vList, key: "/cluster/"}, {name: "head", verb: vHead, key: ".seg"}, {name: "get", verb: vGet, key: ".seg"},
		{name: "put that heals", verb: vPut, key: ".seg"}, {name: "owner", verb: vGet, key: "owner"}, {name: "delete of an orphan", verb: vDelete, key: ".seg"},
	}
	ofRestore = []strike{
		{name: "owner head", verb: vHead, key: "owner"}, {name: "owner get", verb: vGet, key: "owner"}, {name: "owner put", verb: vPut, key: "owner"},
		{name: "snapshots list", verb: vList, key: "/meta/snapshot/"}, {name: "snapshot get", verb: vGet, key: "/meta/snapshot/"},
		{name: "snapshot put", verb: vPut, key: "/meta/snapshot/"},
		{name: "journal list", verb: vList, key: "/meta/journal/"}, {name: "journal get", verb: vGet, key: "/meta/journal/"},
		{name: "segments list", verb: vList, key: "/0000000000/"}, {name: "report put", verb: vPut, key: "/meta/restore/"},
	}
)

// only are the spots with one of these verbs.
func only(spots []strike, verbs ...objstore.Verb) []strike {
	return slices.DeleteFunc(slices.Clone(spots), func(s strike) bool { return !slices.Contains(verbs, s.verb) })
}

const matrixColumns = 6

// matrixOps are the columns.
var matrixOps = [matrixColumns]matrixOp{uploadOp, readOp, deleteOp, mergeOp, scrubOp, restoreOp}

// matrixRow is one fault. In memory it is f; on the wire it is what wireFaults has under its name.
type matrixRow struct {
	name  string
	f     objstore.Fault
	cells [matrixColumns]cell // in the order of matrixOps
}

const (
	noReply = "a put has the reply that is lost here; the operation has none"
	noList  = "it goes by the metastore's rows and lists nothing"
	noMulti = "it deletes nothing; what it leaves goes as in the column of deletes"
	noBody  = "a listing has no checksum; it is cut or refused in the other rows"
)

var everywhere = [matrixColumns]cell{at(ofUpload), at(ofRead), at(ofRemove), at(ofMerge), at(ofScrub), at(ofRestore)}

// bodies have a body that can be spoilt.
var bodies = [matrixColumns]cell{
	at(ofUpload), at(ofRead), at(only(ofRemove, vPut)), at(only(ofMerge, vGet, vPut)), at(only(ofScrub, vGet, vPut)), at(only(ofRestore, vGet, vPut)),
}

// puts are all puts.
var puts = [matrixColumns]cell{
	at(ofUpload), notAt(noReply), at(only(ofRemove, vPut)), at(only(ofMerge, vPut)), at(only(ofScrub, vPut)), at(only(ofRestore, vPut)),
}

var faultMatrix = []matrixRow{
	{"500", objstore.Fault{Kind: objstore.FaultError}, everywhere},
	{"503 SlowDown", objstore.Fault{Kind: objstore.FaultThrottle}, everywhere},
	{"timeout", objstore.Fault{Kind: objstore.FaultHang}, everywhere},
	{"reset mid-body", objstore.Fault{Kind: objstore.FaultReset}, [...]cell{
		at(ofUpload), at(ofRead), at(ofRemove), at(ofMerge), at(only(ofScrub, vList, vGet, vPut, vDelete)), at(only(ofRestore, vList, vGet, vPut)),
	}},
	{"wrong bytes", objstore.Fault{Kind: objstore.FaultWrongBytes}, bodies},
	{"truncated body", objstore.Fault{Kind: objstore.FaultTruncated}, [...]cell{
		at(ofUpload), at(ofRead), at(only(ofRemove, vPut)), at(only(ofMerge, vGet, vPut)), at(only(ofScrub, vList, vGet, vPut)), at(only(ofRestore, vList, vGet, vPut)),
	}},
	{"lost PUT reply", objstore.Fault{Kind: objstore.FaultLostReply}, puts},
	{"late PUT", objstore.Fault{Kind: objstore.FaultLate}, puts},
	{"stale LIST", objstore.Fault{Kind: objstore.FaultStaleList}, [...]cell{
		notAt(noList), notAt(noList), notAt(noList), notAt(noList), at(only(ofScrub, vList)), at(only(ofRestore, vList)),
	}},
	{"partial multi-delete", objstore.Fault{Kind: objstore.FaultPartialDelete}, [...]cell{
		notAt(noMulti), notAt(noMulti), at(only(ofRemove, vDelete)), at(only(ofMerge, vDelete)), at(only(ofScrub, vDelete)), notAt(noMulti),
	}},
	{"AccessDenied", objstore.Fault{Kind: objstore.FaultError, Err: objstore.ErrForbidden}, everywhere},
	{"expired credentials", objstore.Fault{Kind: objstore.FaultError, Err: fmt.Errorf("ExpiredToken: %w", objstore.ErrForbidden)}, everywhere},
	{bucketGone, objstore.Fault{Kind: objstore.FaultError, Err: objstore.ErrBucketMissing}, everywhere},
}

// matrixWords are the rows and columns that there must be, as they were asked for.
const matrixWords = "500, 503 SlowDown, timeout, reset mid-body, wrong bytes, truncated body, lost PUT reply, late PUT, stale LIST, " +
	"partial multi-delete, AccessDenied, expired credentials, bucket gone and back x upload, read, delete, merge, scrub, restore"

// TestFaultMatrixIsWhole: every fault, every operation, every cell either played or accounted for; every request that an operation
// makes meets some fault.
func TestFaultMatrixIsWhole(t *testing.T) {
	var rows, ops []string
	for _, r := range faultMatrix {
		rows = append(rows, r.name)
		for i, c := range r.cells {
			if len(c.at) > 0 && r.name != bucketGone && wireFaults[r.name] == nil {
				t.Errorf("%s is not played on the wire", r.name)
			}
			if (len(c.at) == 0) == (c.why == "") {
				t.Errorf("%s x %s: %d places, and the reason for none is %q", r.name, matrixOps[i].name, len(c.at), c.why)
			}
		}
	}
	for _, o := range matrixOps {
		ops = append(ops, o.name)
	}
	if got := strings.Join(rows, ", ") + " x " + strings.Join(ops, ", "); got != matrixWords {
		t.Errorf("the matrix is %s", got)
	}
}

// matrixCase is an operation in its world, in one row.
type matrixCase struct {
	t     *testing.T
	op    matrixOp
	row   matrixRow
	w     *world
	g     *target // of restores
	n     int     // spots so far
	lasts bool    // the fault is there now

	planted map[int64]bool // base offsets of the segments that a scrub has to find
}

// matrixOp is a column.
type matrixOp struct {
	name  string
	world func(t *testing.T, size worldSize) *world
	ready func(c *matrixCase, s strike)  // makes something to do, with a fair store
	armed func(c *matrixCase)            // changes the bucket while the fault is there; may be nil
	try   func(c *matrixCase) error      // tries once; nil when all is done
	sound func(c *matrixCase, e []error) // what must hold of the errors while the fault was there; may be nil
	check func(c *matrixCase)            // the end
}

// worldSize changes a world before its Manager starts.
type worldSize func(w *world)

const (
	matrixTries  = 3  // with the fault
	matrixRounds = 40 // without
)

// play is one strike of a cell.
func (c *matrixCase) play(s strike, arm, end func()) {
	c.n++
	c.op.ready(c, s)
	arm()
	c.lasts = true
	if c.op.armed != nil {
		c.op.armed(c)
	}
	var errs []error
	for range matrixTries {
		if err := c.op.try(c); err != nil {
			errs = append(errs, err)
		}
		c.w.clock.advance(20 * time.Second)
	}
	if c.op.sound != nil {
		c.op.sound(c, errs)
	}
	end()
	c.lasts = false
	last := errors.New("not tried")
	for range matrixRounds {
		if last = c.op.try(c); last == nil {
			break
		}
		c.w.clock.advance(time.Minute)
	}
	if last != nil {
		c.t.Fatalf("does not get over it: %v; with the fault: %v", last, errs)
	}
	c.op.check(c)
}

// TestFaultMatrix plays every cell over the store in memory.
func TestFaultMatrix(t *testing.T) {
	for _, row := range faultMatrix {
		for i, cell := range row.cells {
			if cell.why != "" {
				continue
			}
			t.Run(row.name+"/"+matrixOps[i].name, func(t *testing.T) {
				t.Parallel()
				c := &matrixCase{t: t, op: matrixOps[i], row: row}
				c.w = c.op.world(t, func(w *world) {
					w.useMem(w.clock.Now)
					if row.f.Kind == objstore.FaultHang {
						limit := 50 * time.Millisecond
						w.opts.Store = objstore.WithDeadline(w.store, objstore.Deadlines{Put: limit, Get: limit, Head: limit, List: limit, Delete: limit})
					}
				})
				for _, s := range cell.at {
					c.playMem(s)
				}
			})
		}
	}
}

// playMem plays a strike by the script of the store in memory.
func (c *matrixCase) playMem(s strike) {
	c.t.Run(s.name, func(t *testing.T) {
		was := c.t
		defer func() { c.on(was) }()
		c.on(t)
		met := c.w.store.Met()
		c.play(s, func() {
			c.w.store.Add(objstore.Fault{Kind: c.row.f.Kind, Err: c.row.f.Err, Verb: s.verb, Key: s.key, Skip: s.skip, Times: -1})
		}, func() {
			if c.w.store.Met() == met {
				t.Error("the fault was not met")
			}
			c.w.store.Clear()
			if err := c.w.store.Release(c.w.ctx); err != nil && !errors.Is(err, objstore.ErrPrecondition) {
				t.Fatal(err)
			}
		})
	})
}

// on makes t the test that failures belong to.
func (c *matrixCase) on(t *testing.T) {
	c.t, c.w.t = t, t
	if c.g != nil {
		c.g.t = t
	}
}
