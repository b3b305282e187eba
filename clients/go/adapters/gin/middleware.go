// Package gin has middleware for github.com/gin-gonic/gin. Echo needs none of its own: echo.WrapMiddleware takes
// Limiter.Middleware.
package gin

import (
	"net/http"

	cellserver "example.com/cellserver/clients/go"
	"github.com/gin-gonic/gin"
)

// Middleware limits requests by a policy. A refused request gets the answer of [cellserver.Limiter.Middleware].
func Middleware(l *cellserver.Limiter, policy string, subject func(*gin.Context) string) gin.HandlerFunc {
	return MiddlewareOf(l, policy, func(c *gin.Context) cellserver.Limit { return cellserver.Policy(policy, subject(c)) })
}

// MiddlewareOf limits requests by a limit that limit returns. The RateLimit fields of responses call it name.
func MiddlewareOf(l *cellserver.Limiter, name string, limit func(*gin.Context) cellserver.Limit) gin.HandlerFunc {
	return func(c *gin.Context) {
		a, err := l.Answer(c.Request.Context(), name, limit(c))
		if err != nil {
			_ = c.AbortWithError(http.StatusInternalServerError, err)
			return
		}
		for field, values := range a.Header {
			c.Writer.Header()[field] = values
		}
		if a.Status != http.StatusOK {
			c.Data(a.Status, "application/problem+json", a.Body)
			c.Abort()
		}
	}
}
