package server

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"cellserver/internal/option"
)

// Settings are the values of the server's options.
type Settings struct {
	Transport        string
	IOThreads        int // event loops; 0 for one per core that the process may use
	MaxClients       int // connections
	SystemMaxClients int // connections that the system allows, the limit of CONFIG SET maxclients; 0 for none
	Timeout          int // seconds after which an idle connection is closed; 0 for never
	ProtectedMode    string
	Output           [3]OutputLimit // by class: see outputClasses
}

// NewSettings returns the defaults.
func NewSettings() *Settings {
	return &Settings{
		Transport: string(DefaultTransport), MaxClients: 10_000, ProtectedMode: "yes",
		Output: [3]OutputLimit{{256 << 20, 64 << 20, time.Minute}, {256 << 20, 64 << 20, time.Minute},
			{32 << 20, 8 << 20, time.Minute}},
	}
}

// MaxSeconds is the largest value of options that are times: 34 years.
const MaxSeconds = 1 << 30

// Options returns the options whose values the settings hold.
func (s *Settings) Options() []*option.Option {
	const network, limits = "Network", "Limits"
	return []*option.Option{
		{Name: "protected-mode", Group: network, Kind: option.YesNo(&s.ProtectedMode),
			Help: "refuse peers that use neither the loopback interface nor a Unix socket, while the user default needs no password"},
		{Name: "timeout", Group: network, Kind: option.Time(&s.Timeout, time.Second, 0, MaxSeconds),
			Change: option.Live,
			Help:   "seconds after which an idle connection is closed, unless it is a subscriber's or a monitor's; 0 for never"},
		{Name: "transport", Group: network, Kind: option.Choice(&s.Transport, string(EventLoop), string(Goroutines)),
			Help: "how connections are served: by a few loops, or by a goroutine each",
			Use: "Choose goroutines to find out whether a problem comes from the event loops; other systems than Linux " +
				"have no loops, and with --store, goroutines are used."},
		{Name: "io-threads", Group: network, Kind: option.Number(&s.IOThreads, 0, 1024), Change: option.Immutable,
			Help: "event loops; 0 for one per core"},
		{Name: "maxclients", Group: limits,
			Kind:   maxClients{option.Number(&s.MaxClients, 1, 10_000_000), &s.SystemMaxClients},
			Change: option.Live,
			Help:   "connections at once; further ones get an error and are closed"},
		{Name: "client-output-buffer-limit", Group: limits, Kind: outputLimits{&s.Output}, Change: option.Live,
			Words: true,
			Help:  "unread replies beyond which a client is disconnected: class, hard limit, soft limit, seconds beyond the soft limit"},
	}
}

// maxClients is the option.Kind of a number of connections that the system limits.
type maxClients struct {
	option.Kind
	systemMax *int
}

func (c maxClients) Check(text string) error {
	err := c.Kind.Check(text)
	if n, _ := strconv.Atoi(text); err == nil && *c.systemMax > 0 && n > *c.systemMax {
		return redisError(fmt.Sprintf("The operating system is not able to handle the specified number of clients, try with %d",
			*c.systemMax))
	}
	return err
}

// redisError is an error in Redis's words, which may begin with a capital and end with a period.
type redisError string

func (s redisError) Error() string { return string(s) }

// outputClasses are the classes of clients in redis.conf, in the order in which CONFIG GET shows
// them. replica is another name of slave.
var outputClasses = []string{"normal", "slave", "pubsub", "replica"}

// Indexes of the classes that exist. There are no replicas: their limits are stored and have no
// effect.
const (
	normalClients = 0
	pubsubClients = 2
)

// outputLimits is the option.Kind of client-output-buffer-limit. The value is, for one or more
// classes of clients: the class, a hard limit, a soft limit, and the seconds that a client may stay
// beyond the soft limit. The limits of other classes do not change. 0 is no limit.
type outputLimits struct{ of *[3]OutputLimit }

func (o outputLimits) Set(text string) error {
	fields := strings.Fields(text)
	wrong := fmt.Errorf("it must be a class (normal, pubsub or replica), a hard limit, a soft limit and seconds, such as %q", "normal 256mb 64mb 60")
	if len(fields) == 0 || len(fields)%4 != 0 {
		return wrong
	}
	limits := *o.of
	for four := range slices.Chunk(fields, 4) {
		hard, ok1 := option.ParseSize(four[1])
		soft, ok2 := option.ParseSize(four[2])
		seconds, err := strconv.Atoi(four[3])
		class := slices.Index(outputClasses, four[0])
		if class < 0 || !ok1 || !ok2 || err != nil || seconds < 0 || seconds > MaxSeconds {
			return wrong
		}
		if class == len(limits) {
			class = slices.Index(outputClasses, "slave")
		}
		limits[class] = OutputLimit{Hard: int(hard), Soft: int(soft),
			SoftDuration: time.Duration(seconds) * time.Second}
	}
	*o.of = limits
	return nil
}

func (o outputLimits) Check(text string) error {
	fields := strings.Fields(text)
	if len(fields) == 0 || len(fields)%4 != 0 {
		return redisError("Wrong number of arguments in buffer limit configuration.")
	}
	for four := range slices.Chunk(fields, 4) {
		if !slices.Contains(outputClasses, four[0]) {
			return redisError("Invalid client class specified in buffer limit configuration.")
		}
	}
	if (outputLimits{new([3]OutputLimit)}).Set(text) != nil {
		return redisError("Error in hard, soft or soft_seconds setting in buffer limit configuration.")
	}
	return nil
}

// format returns the value, in which size formats the sizes.
func (o outputLimits) format(size func(bytes int) string) string {
	var words []string
	for i, limit := range o.of {
		words = append(words, outputClasses[i], size(limit.Hard), size(limit.Soft),
			strconv.Itoa(int(limit.SoftDuration.Seconds())))
	}
	return strings.Join(words, " ")
}

func (o outputLimits) String() string { return o.format(option.FormatSize) }
func (o outputLimits) Show() string   { return o.format(strconv.Itoa) }
func (o outputLimits) Type() string   { return "limits" }
func (o outputLimits) Range() string  { return "" }

// applySettings applies the settings, now and whenever CONFIG SET changes them.
func (s *Server) applySettings(settings *Settings, options *option.List) {
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	effects := map[string]func(){
		"timeout":    func() { s.timeout.Store(int64(seconds(settings.Timeout))) },
		"maxclients": func() { s.maxClients.Store(int64(settings.MaxClients)) },
		"client-output-buffer-limit": func() {
			s.output.Store(&classLimits{settings.Output[normalClients], settings.Output[pubsubClients]})
			s.instance.BoundPushes(settings.Output[pubsubClients].Hard)
		},
	}
	for name, apply := range effects {
		apply()
		if options != nil {
			options.OnChange(func() error { apply(); return nil }, name)
		}
	}
}
