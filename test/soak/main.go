// Command soak runs cellserver for a long time, with malicious clients, and with clients that know the
// correct replies. It exits with status 1 if a reply is wrong, if the server crashes, or if memory,
// files or goroutines are left afterwards.
//
//	go run ./test/soak -server bin/cellserver -for 60s -transport event-loop
//
// With -everything, the server also has a folder of --dir, TLS, HTTP, gRPC, a page and policies that are reloaded, and
// there are clients of each, clients that wait and clients with holds.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/test/hostile"
)

// The load: at most 8*10 connections of attackers, 20 connections of clients, and one that
// observes.
const (
	attackers = 8
	clients   = 16
	// bannedClients is the number of additional clients, whose policy bans them.
	bannedClients = 4
	attackPace    = 5 * time.Millisecond // between two attacks of one attacker
	clientPace    = time.Millisecond     // between two batches of one client
	keys          = 50_000               // keys that exist all the time, for KEYS to list
)

// How much may be left at the end.
const (
	mayStay      = 96 << 20 // bytes of resident memory; Go's heap keeps some
	mayGrow      = 96 << 20 // bytes, from one fifth of the time to another
	filesMayStay = 0
	goMayStay    = 0                // goroutines
	settles      = 60 * time.Second // the longest wait for everything else to be released
)

// soak is one run.
type soak struct {
	server  *process
	wrong   chan error // the first error ends the run
	calls   atomic.Int64
	attacks atomic.Int64
	longest atomic.Int64 // nanoseconds: the longest round trip of victim's calls
	peak    int64        // resident memory in bytes
	samples []int64      // bytes resident, once a second
	files   int          // most open files
}

func main() {
	binary := flag.String("server", "bin/cellserver", "the `binary`, as make build makes it")
	length := flag.Duration("for", time.Minute, "how long the traffic lasts")
	transport := flag.String("transport", "event-loop", "event-loop or goroutines")
	seed := flag.Uint64("seed", 1, "seed of the random numbers")
	everything := flag.Bool("everything", false, "turn on everything that the server has")
	flag.Parse()
	if err := run(*binary, *transport, *length, *seed, *everything); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(binary, transport string, length time.Duration, seed uint64, everything bool) (err error) {
	var more *extras
	if everything {
		if more, err = newExtras(length); err != nil {
			return err
		}
		defer more.remove()
	}
	server, err := launch(binary, transport, more)
	if err != nil {
		return err
	}
	defer server.kill()
	s := &soak{server: server, wrong: make(chan error, attackers+clients+bannedClients+2+extraClients)}
	if err := s.warmUp(); err != nil {
		return err
	}
	start, err := server.measure()
	if err != nil {
		return err
	}
	fmt.Printf("soak: %s, %s, seed %d; at the start %s\n", transport, length, seed, start)
	if err := s.traffic(length, seed); err != nil {
		return err
	}
	end, err := s.settle(start)
	fmt.Printf("soak: %d calls answered correctly, %d attacks, %s connections, crashes %d\n", s.calls.Load(),
		s.attacks.Load(),
		server.received, server.crashes())
	fmt.Printf("soak: at the start %s; peak %d MiB resident; at the end %s\n", start, s.peak>>20, end)
	fmt.Printf("soak: longest round trip of an ordinary call during the attacks %s\n",
		time.Duration(s.longest.Load()).Round(10*time.Microsecond))
	fmt.Printf("soak: %d files open at most; from the second fifth of the time to the last, the average of resident memory grew by %d KiB\n",
		s.files, s.growth()>>10)
	if err != nil {
		return err
	}
	if growth := s.growth(); more != nil && growth > mayGrow {
		return fmt.Errorf("memory is not flat: %d MiB more, and %d are the most", growth>>20, mayGrow>>20)
	}
	if err := server.stop(); err != nil || more == nil {
		return err
	}
	return more.checkFolder(binary)
}

// growth returns by how much the average of the resident memory is larger in the last fifth of the run than in the
// second fifth, in bytes.
func (s *soak) growth() int64 {
	fifth := len(s.samples) / 5
	if fifth == 0 {
		return 0
	}
	return average(s.samples[4*fifth:]) - average(s.samples[fifth:2*fifth])
}

func average(numbers []int64) (sum int64) {
	for _, n := range numbers {
		sum += n
	}
	return sum / int64(len(numbers))
}

// warmUp runs each attack once, so that memory which stays allocated, such as pooled buffers,
// counts at the start.
func (s *soak) warmUp() error {
	if err := s.server.store(keys); err != nil {
		return err
	}
	for _, a := range hostile.Attacks() {
		if err := a.Run(s.server.addr, rand.New(rand.NewPCG(0, 0))); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	if s.server.extras != nil {
		ctx, cancel := context.WithTimeout(context.Background(), warmsUp)
		defer cancel()
		var running sync.WaitGroup
		for _, each := range s.extraClients() {
			running.Go(func() {
				if err := each(ctx); err != nil {
					s.wrong <- err
				}
			})
		}
		running.Wait()
		s.server.extras.closeIdle()
		select {
		case err := <-s.wrong:
			return err
		default:
		}
	}
	return s.server.alone()
}

// traffic runs all attackers and clients for some time.
func (s *soak) traffic(length time.Duration, seed uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var running sync.WaitGroup
	start := func(each func(context.Context) error) {
		running.Go(func() {
			if err := each(ctx); err != nil {
				s.wrong <- err
				cancel()
			}
		})
	}
	for i := range attackers {
		start(func(ctx context.Context) error { return s.attack(ctx, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	for i := range clients {
		start(func(ctx context.Context) error { return s.client(ctx, fmt.Sprint("client", i), 2+i%2) })
	}
	for i := range bannedClients {
		start(func(ctx context.Context) error { return s.banned(ctx, fmt.Sprint("banned", i), 2+i%2) })
	}
	start(s.victim)
	start(s.observe)
	if s.server.extras != nil {
		for _, each := range s.extraClients() {
			start(each)
		}
		defer s.server.extras.closeIdle()
	}
	running.Wait()
	select {
	case err := <-s.wrong:
		return err
	default:
		return nil
	}
}

// attack runs one attack after another.
func (s *soak) attack(ctx context.Context, random *rand.Rand) error {
	kinds := hostile.Attacks()
	return paced(ctx, attackPace, func() error {
		a := kinds[random.IntN(len(kinds))]
		s.attacks.Add(1)
		if err := a.Run(s.server.addr, random); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		return nil
	})
}

// paced calls each at a pace until ctx is done.
func paced(ctx context.Context, pace time.Duration, each func() error) error {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := each(); err != nil {
				return err
			}
		}
	}
}

// observe takes figures once a second, and prints them every ten seconds.
func (s *soak) observe(ctx context.Context) error {
	second := 0
	return paced(ctx, time.Second, func() error {
		m, err := s.server.measure()
		if err != nil {
			return err
		}
		s.peak, s.files = max(s.peak, m.resident), max(s.files, m.files)
		s.samples = append(s.samples, m.resident)
		if second++; second%10 == 0 {
			fmt.Printf("%5ds  %d calls, %d attacks, %s, longest round trip %s\n", second, s.calls.Load(), s.attacks.Load(), m,
				time.Duration(s.longest.Load()).Round(10*time.Microsecond))
		}
		return nil
	})
}

// settle waits until the figures are as at the start, within the bounds above.
func (s *soak) settle(start figures) (end figures, err error) {
	if err := s.server.alone(); err != nil {
		return end, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), settles)
	defer cancel()
	settled := false
	err = paced(ctx, 10*time.Millisecond, func() error {
		if end, err = s.server.measure(); err != nil {
			return err
		}
		if settled = end.resident <= start.resident+mayStay && end.files <= start.files+filesMayStay &&
			end.goroutines > 0 && end.goroutines <= start.goroutines+goMayStay; settled {
			cancel()
		}
		return nil
	})
	if err == nil && !settled {
		err = fmt.Errorf("not everything was released: %s at the start, %s %s after the end", start, end, settles)
	}
	return end, err
}
