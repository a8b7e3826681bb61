package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
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

// metric reads one series of the broker's metrics; 0 when there is none.
func (t *tiered) metric(series string) (float64, error) {
	resp, err := http.Get("http://" + t.node.HTTP + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		if rest, ok := strings.CutPrefix(sc.Text(), series+" "); ok {
			return strconv.ParseFloat(rest, 64)
		}
	}
	return 0, sc.Err()
}

// bareLane reads the same objects in a process of its own.
func (t *tiered) bareLane(ctx context.Context, w s3server.Weather) (*lane, error) {
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
	s, err := t.b.startBare(ctx, "gets", endpoint+"/"+t.s3.Bucket)
	if err != nil {
		return nil, err
	}
	total := int64(t.batches) * int64(len(t.batch))
	return &lane{close: s.kill, round: func(context.Context) (sample, error) {
		t.proxy.Set(w)
		c, err := dial(s.addr)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		var gets int64
		used, err := measure(s.pid, func() error {
			var req [bareRequestBytes]byte
			binary.BigEndian.PutUint64(req[4:], uint64(total))
			if _, err := c.Write(req[:]); err != nil {
				return err
			}
			head, err := c.reply(8)
			if err == nil {
				gets = int64(binary.BigEndian.Uint64(head))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		out := used.moved(gets, total/int64(len(t.batch))*int64(t.records), total)
		out[getsPerGB] = float64(gets) / (float64(total) / 1e9)
		return out, nil
	}}, nil
}

// bareReads serves requests for so many bytes: the objects of the bucket, from the first on, by parallel ranged GETs. The
// answer is how many that took.
func bareReads(place string) (func(c *net.TCPConn) error, error) {
	u, err := url.Parse(place)
	if err != nil {
		return nil, err
	}
	bucket := strings.TrimPrefix(u.Path, "/")
	client := s3.New(s3.Options{
		BaseEndpoint: aws.String("http://" + u.Host), Region: "us-east-1", UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}, nil
		}),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		HTTPClient: &http.Client{Transport: &http.Transport{
			MaxIdleConnsPerHost: bareGets, ReadBufferSize: 64 << 10, DisableCompression: true, IdleConnTimeout: time.Minute,
		}},
	})
	return func(c *net.TCPConn) error {
		var req [bareRequestBytes]byte
		for {
			if _, err := io.ReadFull(c, req[:]); err != nil {
				return err
			}
			gets, err := bareRead(context.Background(), client, bucket, int64(binary.BigEndian.Uint64(req[4:])))
			if err != nil {
				return err
			}
			reply := binary.BigEndian.AppendUint32(nil, 8)
			if _, err := c.Write(binary.BigEndian.AppendUint64(reply, uint64(gets))); err != nil {
				return err
			}
		}
	}, nil
}

func bareRead(ctx context.Context, client *s3.Client, bucket string, total int64) (gets int, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(bareGets)
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: &bucket})
	for pages.HasMorePages() && total > 0 {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return gets, err
		}
		for _, o := range page.Contents {
			if !strings.HasSuffix(aws.ToString(o.Key), ".seg") {
				continue
			}
			for off, end := int64(0), min(aws.ToInt64(o.Size), total); off < end; off += bareGetBytes {
				n := min(bareGetBytes, end-off)
				total -= n
				gets++
				g.Go(func() error { return bareGet(ctx, client, bucket, *o.Key, off, n) })
			}
		}
	}
	if err = g.Wait(); err == nil && total > 0 {
		err = fmt.Errorf("the bucket holds %d bytes too few", total)
	}
	return gets, err
}

func bareGet(ctx context.Context, client *s3.Client, bucket, key string, off, n int64) error {
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key, Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+n-1))})
	if err != nil {
		return err
	}
	defer out.Body.Close()
	buf := make([]byte, 128<<10)
	for left := n; left > 0; {
		k, err := io.ReadFull(out.Body, buf[:min(left, int64(len(buf)))])
		left -= int64(k)
		if err != nil {
			return err
		}
	}
	return nil
}
