package top

import "fmt"

// domains returns as many lines about the domains of Envoy's rate limits as fit into a room, and nothing without any.
// INFO has at most 20.
func (s *sample) domains(room int) []line {
	var texts []string
	for i := 0; ; i++ {
		text, found := s.info[fmt.Sprint("envoy_domain", i)]
		if !found {
			break
		}
		var limits, allowed, over int64
		var name string
		_, _ = fmt.Sscanf(text, "limits=%d,ok=%d,over_limit=%d,name=%q", &limits, &allowed, &over, &name)
		texts = append(texts, fmt.Sprintf("%-20q limits: %d; allowed: %d; over the limit: %d", name, limits, allowed, over))
	}
	if len(texts) == 0 || room <= around {
		return nil
	}
	if fits := room - around; len(texts) > fits {
		more := len(texts) - fits + 1
		texts = append(texts[:fits-1], fmt.Sprintf("and %d more", more))
	}
	all := []line{{}, {"DOMAINS OF ENVOYS", true}}
	for _, text := range texts {
		all = append(all, line{text: text})
	}
	return all
}
