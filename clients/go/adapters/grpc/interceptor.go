// Package grpc has interceptors for google.golang.org/grpc:
//
//	limit := func(ctx context.Context, method string) cellserver.Limit { return cellserver.Policy("api", userOf(ctx)) }
//	grpc.NewServer(grpc.UnaryInterceptor(cellgrpc.Unary(limiter, limit)))
package grpc

import (
	"context"

	cellserver "example.com/cellserver/clients/go"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Limit returns what a call of a method takes 1 from.
type Limit func(ctx context.Context, method string) cellserver.Limit

// Unary limits calls. A refused call gets RESOURCE_EXHAUSTED, with RetryInfo if it may be repeated later; UNAVAILABLE
// if the server does not answer and OnError refuses; INTERNAL after a mistake of the program, which Observe sees.
func Unary(l *cellserver.Limiter, limit Limit) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if err := take(ctx, l, limit(ctx, info.FullMethod)); err != nil {
			return nil, err
		}
		return next(ctx, request)
	}
}

// Stream limits streams when they begin, as Unary limits calls.
func Stream(l *cellserver.Limiter, limit Limit) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx := stream.Context()
		if err := take(ctx, l, limit(ctx, info.FullMethod)); err != nil {
			return err
		}
		return next(server, stream)
	}
}

func take(ctx context.Context, l *cellserver.Limiter, limit cellserver.Limit) error {
	d, err := l.Do(ctx, limit, 1)
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case err != nil:
		return status.Error(codes.Internal, "the rate limit cannot be decided")
	case d.Allowed:
		return nil
	case d.Cause != nil && d.Limit == 0:
		return status.Error(codes.Unavailable, "the rate limit cannot be decided at the moment")
	}
	refused := status.New(codes.ResourceExhausted, "rate limit exceeded")
	if d.RetryAfter > 0 {
		info := &errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)}
		if detailed, err := refused.WithDetails(info); err == nil {
			refused = detailed
		}
	}
	return refused.Err()
}
