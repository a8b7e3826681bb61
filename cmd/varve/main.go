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
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args, env []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := rootCommand()
	shared := &sharedWriter{w: stderr}
	defer shared.end()
	c := &call{ctx: ctx, cmd: root, path: root.name, args: args, env: env, stdin: stdin, stdout: stdout, stderr: shared}
	return c.dispatch()
}

// rootCommand is the whole tree of commands.
func rootCommand() *command {
	return &command{
		name:    "varve",
		summary: "A Kafka-compatible broker whose old layers settle into object storage, and its tools.",
		sub: []*command{
			serverCommand(),
			topicCommand(),
			produceCommand(),
			consumeCommand(),
			groupCommand(),
			clusterCommand(),
			tierCommand(),
			dumpCommand(),
			demoCommand(),
			configCommand(),
			completionCommand(),
			versionCommand(),
		},
		examples: []string{
			"varve server",
			"varve topic create hello --partitions 3",
			"echo hello | varve produce hello",
			"varve consume hello --from-beginning",
			"varve tier status",
		},
	}
}
