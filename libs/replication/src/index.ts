/** Streams, the bus that announces them, remote calls. */
export { Bus, type BusMessage, InProcessBus } from './bus.js';
export { cursorOf, forgetCursor, forgetCursors, saveCursor } from './cursor.query.js';
export { Follower, type FollowerOptions, inBatches } from './follower.js';
export { replicationMigrations } from './migrations.js';
export {
  type Announcement,
  type Audience,
  type Keys,
  Notifier,
  type NotifierOptions,
  type PositionSource,
  type Wait,
  type WaitOptions,
  type WaitOutcome,
} from './notifier.js';
export { defineRpc, InProcessRpc, Rpc, type RpcMethod } from './rpc.js';
export { type ChangedKeys, type News, type Reserved, Stream } from './streams/stream.js';
export { StreamChangeCache } from './streams/stream-change-cache.js';
export {
  type ChangeKey,
  defineStream,
  type KeysOf,
  type ReadStream,
  type StreamDefinition,
  type StreamReader,
  type StreamRow,
} from './streams/stream-definition.js';
export { Streams, type StreamsOptions } from './streams/streams.js';
export { StreamWriters, type StreamWriterTable } from './streams/stream-writers.js';
export { WriterPositions } from './streams/writer-positions.js';
