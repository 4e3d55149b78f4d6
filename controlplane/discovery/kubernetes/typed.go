package kubernetes

import (
	"context"
	"net/http"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// types are the API groups with Pods, EndpointSlices, Leases and reviews.
var types = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{core.AddToScheme, discoveryv1.AddToScheme,
		coordination.AddToScheme, authentication.AddToScheme, authorization.AddToScheme} {
		if err := add(s); err != nil {
			panic("kubernetes: " + err.Error()) // a defect of the build
		}
	}
	return s
}()

// typed makes a client of one API group, which speaks protobuf.
func typed(config *rest.Config, shared *http.Client, path string, group schema.GroupVersion) (rest.Interface, error) {
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion = path, &group
	c.NegotiatedSerializer = serializer.NewCodecFactory(types).WithoutConversion()
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c.ContentType = runtime.ContentTypeProtobuf
	return rest.RESTClientForConfigAndClient(c, shared)
}

// typedRequests are those for the objects of one resource in one namespace; list makes an empty list.
func typedRequests[L runtime.Object](api rest.Interface, k key, list func() L) (lister, watcher) {
	request := func(o meta.ListOptions) *rest.Request {
		return api.Get().Namespace(k.namespace).Resource(resources[k.kind].Resource).
			VersionedParams(&o, runtime.NewParameterCodec(types))
	}
	return func(ctx context.Context, o meta.ListOptions) (runtime.Object, error) {
			found := list()
			return found, request(o).Do(ctx).Into(found)
		}, func(ctx context.Context, o meta.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return request(o).Watch(ctx)
		}
}
