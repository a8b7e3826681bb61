package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startWait bounds how long a node may take to open its port: recovery of a large log is part of it.
	startWait = 10 * time.Minute
	// pollEvery is how closely the opening of the port is watched.
	pollEvery = 5 * time.Millisecond
)

// Options of one node.
type Options struct {
	Data  string   // its folder: server.properties and log; <Data>.log has what it printed
	Props []string // key=value lines beside the ones that make it a KRaft node on 127.0.0.1
	JVM   []string // options such as -Xmx2g
	Ports []int    // of its clients' and of its controller's listener at localhost; nil takes free ones of 127.0.0.1
	ID    int      // node.id; 0 is 1
	// Controller is host:port of the controller that the node joins as a broker; "" = it is one itself.
	Controller string
	File       string // a properties file that is its whole configuration, in place of Props and Ports; it listens at localhost:9092
}

// Node is one running process.
type Node struct {
	Addr       string    // host:port of its listener
	Controller string    // host:port of its controller's listener, or of the controller that it joined
	Logs       string    // folder of its partition folders
	Started    time.Time // just before exec

	cmd  *exec.Cmd
	out  *os.File
	done chan struct{}
	wg   sync.WaitGroup
}

// Start formats the log directory when that has not been done and starts a combined broker and controller, or a broker. It returns
// when the port is open, which is before the broker knows all of its topics.
func Start(ctx context.Context, o Options) (*Node, error) {
	if err := Install(ctx); err != nil {
		return nil, err
	}
	n := &Node{Logs: filepath.Join(o.Data, "log"), done: make(chan struct{})}
	file, err := n.configure(ctx, o)
	if err != nil {
		return nil, err
	}
	args := append(append([]string{}, o.JVM...), "-Dlog4j2.configurationFile="+Log4j(), "-cp", Jars(), "kafka.Kafka", file)
	n.cmd = exec.Command("java", args...)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if n.out, err = os.Create(o.Data + ".log"); err != nil {
		return nil, err
	}
	n.cmd.Stdout, n.cmd.Stderr = n.out, n.out
	n.Started = time.Now()
	if err := n.cmd.Start(); err != nil {
		return nil, errors.Join(err, n.out.Close())
	}
	n.wg.Go(func() { _ = n.cmd.Wait(); close(n.done) })
	if err := n.waitPort(ctx); err != nil {
		n.Kill()
		return nil, fmt.Errorf("the node of Apache Kafka did not open %s, see %s.log: %w", n.Addr, o.Data, err)
	}
	return n, nil
}

// configure writes server.properties, unless the caller did, and formats the log directory.
func (n *Node) configure(ctx context.Context, o Options) (file string, err error) {
	if o.File != "" {
		n.Addr = "localhost:9092"
		text, err := os.ReadFile(o.File)
		if err != nil || strings.Contains(string(text), "controller.quorum.voters") {
			return o.File, errors.Join(err, format(ctx, o.File))
		}
		return o.File, format(ctx, o.File, "--standalone")
	}
	ports, host := o.Ports, "localhost"
	if ports == nil {
		host = "127.0.0.1"
		if ports, err = freePorts(2); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(o.Data, 0o755); err != nil {
		return "", err
	}
	n.Addr = fmt.Sprintf("%s:%d", host, ports[0])
	roles, listeners := "broker", "PLAINTEXT://"+n.Addr
	var how []string
	if n.Controller = o.Controller; n.Controller == "" {
		n.Controller = fmt.Sprintf("127.0.0.1:%d", ports[1])
		roles, listeners, how = "broker,controller", listeners+",CONTROLLER://"+n.Controller, []string{"--standalone"}
	}
	props := append(append([]string{}, o.Props...),
		"process.roles="+roles, fmt.Sprintf("node.id=%d", max(o.ID, 1)), "controller.quorum.bootstrap.servers="+n.Controller,
		"controller.listener.names=CONTROLLER", "inter.broker.listener.name=PLAINTEXT",
		"listeners="+listeners, "advertised.listeners="+listeners,
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT", "log.dirs="+n.Logs)
	file = filepath.Join(o.Data, "server.properties")
	if err := os.WriteFile(file, []byte(strings.Join(props, "\n")+"\n"), 0o644); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(n.Logs, "meta.properties")); err == nil {
		return file, nil
	}
	return file, format(ctx, file, how...)
}

func format(ctx context.Context, file string, how ...string) error {
	args := append([]string{"format", "-t", "dmFydmUtY29tcGF0LXRlcw", "-c", file}, how...)
	if out, err := Tool(ctx, Jars(), "kafka.tools.StorageTool", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("format: %w\n%s", err, out)
	}
	return nil
}

func (n *Node) waitPort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		c, err := net.DialTimeout("tcp", n.Addr, time.Second)
		if err == nil {
			return c.Close()
		}
		select {
		case <-n.done:
			return fmt.Errorf("it ended with %d", n.cmd.ProcessState.ExitCode())
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pollEvery):
		}
	}
}

// PID of the JVM.
func (n *Node) PID() int { return n.cmd.Process.Pid }

// Kill sends SIGKILL and waits for the end.
func (n *Node) Kill() { n.end(syscall.SIGKILL) }

// Terminate sends SIGTERM and waits for the end; when the context ends first, the process is killed and that is an error.
func (n *Node) Terminate(ctx context.Context) error {
	_ = syscall.Kill(-n.PID(), syscall.SIGTERM)
	select {
	case <-n.done:
		n.end(syscall.SIGKILL)
		return nil
	case <-ctx.Done():
		n.Kill()
		return fmt.Errorf("the node of Apache Kafka outlived SIGTERM: %w", ctx.Err())
	}
}

func (n *Node) end(s syscall.Signal) {
	_ = syscall.Kill(-n.PID(), s)
	n.wg.Wait()
	_ = n.out.Close()
}

func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
