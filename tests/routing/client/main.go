// Command client is a gRPC client of the Open Inference Protocol as the benchmark and the tests of
// routing run it: grpc-go with a service config chooses the server, and requests are sent at times
// that were drawn before, whatever the servers do.
//
// JSON on standard input says what to do. "start" goes to standard output when the clock starts, and
// when all requests are answered a line for each: the intended time, how late it was sent, and its
// latency from the intended time, in nanoseconds, the gRPC code, and the server that answered; at
// last the cpu time that all took.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	_ "google.golang.org/grpc/balancer/leastrequest"
	_ "google.golang.org/grpc/balancer/weightedroundrobin"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
)

const method = "/inference.GRPCInferenceService/ModelInfer"

// A request that is not answered by then has no answer.
const patience = 10 * time.Second

// Between the connections and the first request, so that all servers are connected.
const settling = 300 * time.Millisecond

type order struct {
	Servers       []string        `json:"servers"`
	ServiceConfig json.RawMessage `json:"service_config"`
	// Files with the messages that are sent in turn, without their frames.
	MessageFiles []string `json:"message_files"`
	// Nanoseconds after the start.
	Times []int64 `json:"times"`
	// Whether to ask for the load in the trailer of each answer.
	Reports bool `json:"reports"`
}

type outcome struct {
	lag, latency time.Duration
	code         int
	server       string
}

// bytes passes messages through: they are encoded already.
type bytes struct{}

func (bytes) Name() string { return "proto" }

func (bytes) Marshal(message any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*message.(*[]byte))}, nil
}

func (bytes) Unmarshal(data mem.BufferSlice, message any) error {
	*message.(*[]byte) = data.Materialize()
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run() error {
	var order order
	if err := json.NewDecoder(bufio.NewReader(os.Stdin)).Decode(&order); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	var messages [][]byte
	for _, file := range order.MessageFiles {
		message, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		messages = append(messages, message)
	}
	connection, err := connect(&order)
	if err != nil {
		return err
	}
	defer connection.Close()
	connection.Connect()
	time.Sleep(settling)

	outcomes := make([]outcome, len(order.Times))
	start := time.Now()
	fmt.Println("start")
	var sent sync.WaitGroup
	for index, nanos := range order.Times {
		intended := start.Add(time.Duration(nanos))
		time.Sleep(time.Until(intended))
		lag := time.Since(intended)
		sent.Go(func() {
			outcomes[index] = infer(connection, messages[index%len(messages)], order.Reports)
			outcomes[index].lag, outcomes[index].latency = lag, time.Since(intended)
		})
	}
	sent.Wait()
	out := bufio.NewWriter(os.Stdout)
	for index, o := range outcomes {
		fmt.Fprintln(out, order.Times[index], int64(o.lag), int64(o.latency), o.code, o.server)
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return err
	}
	fmt.Fprintln(out, "cpu", usage.Utime.Nano()+usage.Stime.Nano())
	return out.Flush()
}

func connect(order *order) (*grpc.ClientConn, error) {
	servers := manual.NewBuilderWithScheme("servers")
	var state resolver.State
	for _, server := range order.Servers {
		address := resolver.Address{Addr: server}
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{address}})
	}
	servers.InitialState(state)
	// A server that comes back is found after 100 to 500 ms; the default is a second and more.
	reconnect := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}
	return grpc.NewClient("servers:///albacore",
		grpc.WithResolvers(servers),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(string(order.ServiceConfig)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytes{})),
	)
}

func infer(connection *grpc.ClientConn, message []byte, reports bool) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if reports {
		ctx = metadata.AppendToOutgoingContext(ctx, "endpoint-load-metrics-format", "bin")
	}
	var answer []byte
	var server peer.Peer
	err := connection.Invoke(ctx, method, &message, &answer, grpc.Peer(&server))
	// Refusals for overload are the caller's figures; whatever else failed should be known.
	if code := status.Code(err); code != codes.OK && code != codes.ResourceExhausted {
		fmt.Fprintln(os.Stderr, "client:", err)
	}
	o := outcome{code: int(status.Code(err)), server: "-"}
	if server.Addr != nil {
		o.server = server.Addr.String()
	}
	return o
}
