package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ownPorts are those that strangers' suites and quick-start files have written into them; their own tests take 9093 for a
// port where nobody listens.
var ownPorts = []int{9092, 9094}

// quickStartLogs is the log directory of Kafka's quick-start file, which lies in the folder for temporary files.
var quickStartLogs = filepath.Join(os.TempDir(), "kraft-combined-logs")

// beside makes the command that runs args beside a broker of its own at localhost:9092: this program once more, in network,
// process and mount namespaces that end with it, so that fixed ports and folders disturb nobody. With a file, that is the
// broker's whole configuration.
func beside(ctx context.Context, e *Env, file string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(e.Broker.Data+ownSuffix, e.Name)
	if err := os.MkdirAll(filepath.Join(data, "log"), 0o755); err != nil {
		return nil, err
	}
	spaces := []string{"--net", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Geteuid() != 0 {
		spaces = append(spaces, "--user", "--map-root-user")
	}
	prepare := "ip link set lo up && "
	if file != "" {
		if err := os.MkdirAll(quickStartLogs, 0o755); err != nil {
			return nil, err
		}
		prepare += fmt.Sprintf("mount --bind '%s' '%s' && ", filepath.Join(data, "log"), quickStartLogs)
	}
	all := append(spaces, "sh", "-c", prepare+`exec "$@"`, "sh",
		self, "-own", e.Broker.Name, "-varve", e.Broker.Binary, "-keep", data, "-config", file)
	return exec.CommandContext(ctx, "unshare", append(all, args...)...), nil
}

// ownSuffix is appended to the data folder of the broker that a cell's own brokers stand in for.
const ownSuffix = "-own"

// runBeside is the other side of beside: it starts the broker and runs the command.
func runBeside(ctx context.Context, o options, args []string) error {
	start, p := startVarve, place{data: o.keep, binary: o.binary, file: o.config, ports: ownPorts}
	if o.own == "kafka" {
		start = startKafka
	}
	b, err := start(ctx, p)
	if err != nil {
		return err
	}
	defer b.stop()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
