package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"varve/broker/admin"
)

// compare holds what came back of each file against what was loaded.
func (d *demo) compare() error {
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		f := d.files[name]
		if got := f.back.Sum(nil); !slices.Equal(got, f.sum[:]) {
			return fmt.Errorf("%s came back changed: SHA-256 %x, not %x", name, got, f.sum)
		}
	}
	return nil
}

// report prints the result in a few small tables.
func (d *demo) report(ctx context.Context) error {
	st, err := d.status(ctx)
	if err != nil {
		return err
	}
	w := d.c.stdout
	fmt.Fprintf(w, "\nall %s files came back byte for byte, every offset once and in order\n\n", count(len(d.files)))
	t := newTable(w, "STEP", ">LINES", ">BYTES", ">SECONDS", ">MB/S")
	row := func(step string, total demoTotal) {
		s := d.took[step].Seconds()
		t.row(step, count(total.records), size(total.bytes), fmt.Sprintf("%.1f", s), fmt.Sprintf("%.0f", float64(total.bytes)/1e6/s))
	}
	row("load", d.loaded)
	t.row("settle", "", "", fmt.Sprintf("%.1f", d.took["settle"].Seconds()), "")
	row("read back", d.read)
	t.row("  of it from the tier", count(d.fromTier.records), size(d.fromTier.bytes), "", "")
	t.flush()

	fmt.Fprintln(w)
	t = newTable(w, ">PARTITION", ">RECORDS", ">IN TIER TO", ">LOCAL FROM", ">OBJECTS", ">IN TIER", ">LOCAL")
	for _, p := range st.Partitions {
		t.row(p.Partition, count(p.LocalEnd-p.LogStart), count(p.TierEnd), count(p.LocalStart), p.Segments, size(p.TierBytes), size(p.LocalBytes))
	}
	t.row("all", count(d.loaded.records), "", "", st.Total.Segments, size(st.Total.TierBytes), size(st.Total.LocalBytes))
	t.flush()

	fmt.Fprintf(w, "\nstore requests, and what they cost at the list price of S3 Standard:\n")
	printStoreUse(w, worth(st.Store))
	total := time.Duration(0)
	for _, took := range d.took {
		total += took
	}
	fmt.Fprintf(w, "\ndone in %s\n", total.Round(100*time.Millisecond))
	return nil
}

// worth leaves out what was never asked for.
func worth(use []admin.StoreUse) []admin.StoreUse {
	return slices.DeleteFunc(slices.Clone(use), func(u admin.StoreUse) bool { return u.Calls == 0 })
}
