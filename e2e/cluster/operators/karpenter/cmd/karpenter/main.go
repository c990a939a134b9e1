// Command karpenter runs Karpenter with its KWOK provider. The upstream program of it listens on all interfaces, and has
// the name of KWOK itself; this one listens on loopback, and has no metrics and no leader election.
package main

import (
	"context"
	"fmt"

	"github.com/go-logr/zapr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

func main() {
	ctx := injection.WithOptionsOrDie(context.Background(), options.Injectables...)
	logger := zapr.NewLogger(logging.NewLogger(ctx, "controller"))
	log.SetLogger(logger)
	op := newOperator(ctx)
	types, err := kwok.ConstructInstanceTypes(ctx)
	check(err)
	plain := kwok.NewCloudProvider(ctx, op.GetClient(), types)
	provider := overlay.Decorate(plain, op.GetClient(), op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, op.GetClient(), provider)
	all := controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, provider, plain, cluster, op.InstanceTypeStore,
	)
	op.WithControllers(ctx, all...).Start(ctx)
}

func newOperator(ctx context.Context) *operator.Operator {
	config := ctrl.GetConfigOrDie()
	given := options.FromContext(ctx)
	config.QPS, config.Burst = float32(given.KubeClientQPS), given.KubeClientBurst
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:                server.Options{BindAddress: "0"},
		HealthProbeBindAddress: fmt.Sprintf("127.0.0.1:%d", given.HealthProbePort),
		BaseContext: func() context.Context {
			return injection.WithOptionsOrDie(context.Background(), options.Injectables...)
		},
	})
	check(err)
	check(mgr.AddHealthzCheck("healthz", healthz.Ping))
	check(mgr.AddReadyzCheck("readyz", healthz.Ping))
	addIndexes(ctx, mgr)
	return &operator.Operator{
		Manager:             mgr,
		KubernetesInterface: kubernetes.NewForConfigOrDie(config),
		EventRecorder:       events.NewRecorder(mgr.GetEventRecorderFor(operator.AppName)), //nolint:staticcheck
		Clock:               clock.RealClock{},
		InstanceTypeStore:   nodeoverlay.NewInstanceTypeStore(),
	}
}

func addIndexes(ctx context.Context, mgr manager.Manager) {
	add := func(kind client.Object, path string, value func(client.Object) string) {
		check(mgr.GetFieldIndexer().IndexField(ctx, kind, path, func(it client.Object) []string {
			return []string{value(it)}
		}))
	}
	add(&corev1.Pod{}, "spec.nodeName", func(it client.Object) string { return it.(*corev1.Pod).Spec.NodeName })
	add(&corev1.Node{}, "spec.providerID", func(it client.Object) string { return it.(*corev1.Node).Spec.ProviderID })
	add(&storagev1.VolumeAttachment{}, "spec.nodeName", func(it client.Object) string {
		return it.(*storagev1.VolumeAttachment).Spec.NodeName
	})
	claim, pool := &karpenterv1.NodeClaim{}, &karpenterv1.NodePool{}
	ofClaim := func(it client.Object) *karpenterv1.NodeClassReference {
		return it.(*karpenterv1.NodeClaim).Spec.NodeClassRef
	}
	ofPool := func(it client.Object) *karpenterv1.NodeClassReference {
		return it.(*karpenterv1.NodePool).Spec.Template.Spec.NodeClassRef
	}
	add(claim, "status.providerID", func(it client.Object) string {
		return it.(*karpenterv1.NodeClaim).Status.ProviderID
	})
	add(claim, "spec.nodeClassRef.group", func(it client.Object) string { return ofClaim(it).Group })
	add(claim, "spec.nodeClassRef.kind", func(it client.Object) string { return ofClaim(it).Kind })
	add(claim, "spec.nodeClassRef.name", func(it client.Object) string { return ofClaim(it).Name })
	add(pool, "spec.template.spec.nodeClassRef.group", func(it client.Object) string { return ofPool(it).Group })
	add(pool, "spec.template.spec.nodeClassRef.kind", func(it client.Object) string { return ofPool(it).Kind })
	add(pool, "spec.template.spec.nodeClassRef.name", func(it client.Object) string { return ofPool(it).Name })
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
