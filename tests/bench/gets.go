package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/errgroup"

	"varve/tests/s3server"
)

// The bare side of cold reads: so many GETs of that size at a time.
const (
	bareGets     = 8
	bareGetBytes = 8 << 20
)

// bareLane reads the same objects in a process of its own: bare drops the bytes, the relay sends them on, in order.
func (t *tiered) bareLane(ctx context.Context, side string, w s3server.Weather) (*lane, error) {
	endpoint := t.s3.Endpoint
	if w.Latency > 0 || w.BytesPerSec > 0 {
		endpoint = t.proxy.Endpoint
	}
	for _, kv := range t.s3.Env() {
		name, value, _ := strings.Cut(kv, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	s, err := t.b.startBare(ctx, bareKinds[side], endpoint+"/"+t.s3.Bucket)
	if err != nil {
		return nil, err
	}
	total := int64(t.batches) * int64(len(t.batch))
	until := func(done *atomic.Bool, moved *atomic.Int64) error {
		return untilRequest(s.addr, min(total, 256<<20), done, moved)
	}
	return &lane{close: s.kill, until: until, round: func(context.Context) (sample, error) {
		t.proxy.Set(w)
		c, err := dial(s.addr)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return t.withStore(total, func() (sample, error) {
			var gets int64
			used, err := measure(s.pid, func() (err error) {
				gets, err = requestBare(c, total)
				return err
			})
			out := used.moved(gets, total/int64(len(t.batch))*int64(t.records), total)
			out[getsPerGB] = float64(gets) / (float64(total) / 1e9)
			return out, err
		})
	}}, nil
}

// requestBare has the bare program read so many bytes and says with how many GETs it did.
func requestBare(c *conn, total int64) (gets int64, err error) {
	var req [bareRequestBytes]byte
	binary.BigEndian.PutUint64(req[4:], uint64(total))
	if _, err := c.Write(req[:]); err != nil {
		return 0, err
	}
	for ; ; gets++ {
		head, err := c.reply(8)
		if err != nil || len(head) < 8 {
			return gets, err
		}
	}
}

// withStore adds to what a round gave the CPU that the others took meanwhile: on a machine that is full they are a part of
// what bounds it.
func (t *tiered) withStore(bytes int64, round func() (sample, error)) (sample, error) {
	var before, after [2]time.Duration
	pids := [2]int{t.s3.PID(), os.Getpid()}
	for i, pid := range pids {
		var err error
		if before[i], err = cpuOf(pid); err != nil {
			return nil, err
		}
	}
	out, err := round()
	if err != nil {
		return nil, err
	}
	for i, pid := range pids {
		if after[i], err = cpuOf(pid); err != nil {
			return nil, err
		}
	}
	gb := float64(bytes) / 1e9
	out[storeCPU], out[clientCPU] = (after[0]-before[0]).Seconds()/gb, (after[1]-before[1]).Seconds()/gb
	return out, nil
}

// bareKinds are the bare servers of cold reads, by side.
var bareKinds = map[string]string{bare: "gets", relay: "relay"}

// bareReads serves requests for so many bytes: the objects of the bucket, from the first on, by parallel ranged GETs. For
// each there is a reply: of eight bytes, or for the relay the bytes themselves; an empty one ends them.
func bareReads(place string, send bool) (func(c *net.TCPConn) error, error) {
	u, err := url.Parse(place)
	if err != nil {
		return nil, err
	}
	r := &bareReader{bucket: strings.TrimPrefix(u.Path, "/"), send: send, buffers: make(chan []byte, bareGets)}
	for range bareGets {
		size := 128 << 10
		if send {
			size = bareGetBytes
		}
		r.buffers <- make([]byte, size)
	}
	r.client = s3.New(s3.Options{
		BaseEndpoint: aws.String("http://" + u.Host), Region: "us-east-1", UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}, nil
		}),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		HTTPClient: &http.Client{Transport: &http.Transport{
			MaxIdleConnsPerHost: bareGets, DisableCompression: true, IdleConnTimeout: time.Minute,
		}},
	})
	return func(c *net.TCPConn) error {
		var req [bareRequestBytes]byte
		for {
			if _, err := io.ReadFull(c, req[:]); err != nil {
				return err
			}
			if err := r.read(context.Background(), c, int64(binary.BigEndian.Uint64(req[4:]))); err != nil {
				return err
			}
			if _, err := c.Write(make([]byte, 4)); err != nil {
				return err
			}
		}
	}, nil
}

type bareReader struct {
	client  *s3.Client
	bucket  string
	send    bool
	buffers chan []byte
}

// read has as many GETs under way as there are buffers, and answers them in order.
func (r *bareReader) read(ctx context.Context, w io.Writer, total int64) error {
	g, ctx := errgroup.WithContext(ctx)
	queue := make(chan chan []byte, bareGets)
	g.Go(func() error {
		defer close(queue)
		return r.start(ctx, g, total, queue)
	})
	g.Go(func() error {
		for next := range queue {
			b, ok := <-next
			if !ok {
				return nil // the GET's error is the group's
			}
			if err := r.reply(w, b); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

func (r *bareReader) start(ctx context.Context, g *errgroup.Group, total int64, queue chan<- chan []byte) error {
	pages := s3.NewListObjectsV2Paginator(r.client, &s3.ListObjectsV2Input{Bucket: &r.bucket})
	for pages.HasMorePages() && total > 0 {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, o := range page.Contents {
			if !strings.HasSuffix(aws.ToString(o.Key), ".seg") {
				continue
			}
			for off, end := int64(0), min(aws.ToInt64(o.Size), total); off < end; off += bareGetBytes {
				n := min(bareGetBytes, end-off)
				total -= n
				var buf []byte
				select {
				case buf = <-r.buffers:
				case <-ctx.Done():
					return ctx.Err()
				}
				done := make(chan []byte, 1)
				queue <- done
				g.Go(func() error {
					defer close(done)
					err := r.get(ctx, *o.Key, off, n, buf)
					if err == nil {
						done <- buf[:min(n, int64(len(buf)))]
					}
					return err
				})
			}
		}
	}
	if total > 0 {
		return fmt.Errorf("the bucket holds %d bytes too few", total)
	}
	return nil
}

func (r *bareReader) reply(w io.Writer, b []byte) error {
	body := b
	if !r.send {
		body = make([]byte, 8)
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	_, err := w.Write(head)
	if err == nil {
		_, err = w.Write(body)
	}
	r.buffers <- b[:cap(b)]
	return err
}

// get fills buf, over and over when it is smaller than the range.
func (r *bareReader) get(ctx context.Context, key string, off, n int64, buf []byte) error {
	out, err := r.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &r.bucket, Key: &key, Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+n-1))})
	if err != nil {
		return err
	}
	defer out.Body.Close()
	for left := n; left > 0; {
		k, err := io.ReadFull(out.Body, buf[:min(left, int64(len(buf)))])
		left -= int64(k)
		if err != nil {
			return err
		}
	}
	return nil
}
