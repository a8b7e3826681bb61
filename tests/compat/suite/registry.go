package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"varve/tests/node"
)

// Where clients come from.
const (
	registryDebian = "Debian"
	registryGo     = "Go modules"
	registryMaven  = "Maven"
	registryPyPI   = "PyPI"
	registryNpm    = "npm"
)

const (
	installTimeMax = 5 * time.Minute
	buildTimeMax   = 20 * time.Minute // for slow clients, whose native parts are built
	downTimeMax    = 20 * time.Second // for what comes from a registry that was just not reached
)

// pinned reads a version from the file that pins it: the first one that stands behind the name.
func pinned(file, name string) func() string {
	return func() string {
		text, err := os.ReadFile(filepath.Join(node.Root(), filepath.FromSlash(file)))
		if err != nil {
			return err.Error()
		}
		m := regexp.MustCompile(regexp.QuoteMeta(name) + `\W+v?([0-9][\w.-]*)`).FindSubmatch(text)
		if m == nil {
			return "no version in " + file
		}
		return string(m[1])
	}
}

// unreachableWords are what clients of registries say when no answer came, or one that says to come back later. A registry
// that says no (404, a wrong checksum, a version that is not there) was reached.
var unreachableWords = regexp.MustCompile(`(?i)name resolution|name or service not known|no such host|unknown ?host|could not resolve|EAI_AGAIN|ENOTFOUND|` +
	`ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT|network is unreachable|connection (refused|reset|timed out)|` +
	`connect(ion)? ?time(d )?out|read timed out|i/o timeout|handshake timeout|failed to establish a new connection|newconnectionerror|` +
	`status( code)?:? 50[0234]\b|\b50[234] (bad gateway|service unavailable|gateway time)`)

// unreachable tells a registry that was not reached from everything else that can go wrong.
func unreachable(err error) bool {
	return err != nil && (errors.Is(err, context.DeadlineExceeded) || unreachableWords.MatchString(err.Error()))
}

// install brings the clients, registries beside each other. Those whose registry cannot be reached are returned apart where
// that is allowed; kcat and the Go clients are never among them.
func install(ctx context.Context, chosen []Client, unreachableOK bool) (here, missing []Client, err error) {
	by := map[string][]Client{}
	for _, cl := range chosen {
		by[cl.Registry] = append(by[cl.Registry], cl)
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		lost []string
	)
	for registry, all := range by {
		wg.Go(func() {
			down := false
			for _, cl := range all {
				limit := installTimeMax
				switch {
				case down:
					limit = downTimeMax
				case cl.Slow:
					limit = buildTimeMax
				}
				failed := installOne(ctx, cl, limit)
				mu.Lock()
				switch {
				case failed == nil:
				case unreachableOK && registry != registryDebian && registry != registryGo && ctx.Err() == nil && unreachable(failed):
					fmt.Fprintf(os.Stderr, "%s is not installed, %s was not reached: %v\n", cl.Name, registry, failed)
					lost, down = append(lost, cl.Name), true
				default:
					err = errors.Join(err, fmt.Errorf("%s: %w", cl.Name, failed))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, cl := range chosen {
		if slices.Contains(lost, cl.Name) {
			missing = append(missing, cl)
		} else {
			here = append(here, cl)
		}
	}
	return here, missing, err
}

func installOne(ctx context.Context, cl Client, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := cl.Install(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	return err
}
