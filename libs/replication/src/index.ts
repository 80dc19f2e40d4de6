/** Streams, the bus that announces them, remote calls. */
export { Bus, type BusMessage, InProcessBus } from './bus.js';
export { Follower, type FollowerOptions, inBatches, saveCursor } from './follower.js';
export { KeyedQueue, type KeyedQueueOptions } from './keyed-queue.js';
export { replicationMigrations } from './migrations.js';
export {
  type Audience,
  Notifier,
  type NotifierOptions,
  type PositionSource,
  type Wait,
  type WaitOptions,
  type WaitOutcome,
} from './notifier.js';
export { defineRpc, InProcessRpc, Rpc, type RpcMethod } from './rpc.js';
export { defineStream, type StreamDefinition, type StreamRow } from './stream.js';
export { StreamChangeCache } from './stream-change-cache.js';
