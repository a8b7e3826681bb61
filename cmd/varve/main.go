package main

import (
	"context"
	"io"
	"os"
)

// Exit codes.
const (
	exitOK      = 0
	exitRuntime = 1 // it failed
	exitUsage   = 2 // command line or configuration
	exitStore   = 3 // the object store refuses
	exitForeign = 4 // data of another cluster or node, or of a newer version
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	root := &command{
		name:    "varve",
		summary: "A Kafka-compatible broker whose old layers settle into object storage, and its tools.",
		sub: []*command{
			serverCommand(),
			topicCommand(),
			tierCommand(),
			dumpCommand(),
			demoCommand(),
			configCommand(),
			versionCommand(),
		},
		examples: []string{
			"varve server",
			"varve topic create hello --partitions 3",
			"varve tier status",
		},
	}
	c := &call{ctx: ctx, cmd: root, path: root.name, args: args, env: env, stdout: stdout, stderr: stderr}
	return c.dispatch()
}
