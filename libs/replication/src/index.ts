/** Streams, the bus that announces them, remote calls. */
export { Bus, type BusMessage, InProcessBus } from './bus.js';
export { cursorOf, forgetCursor, forgetCursors, saveCursor } from './cursor.query.js';
export { Follower, inBatches } from './follower.js';
export { replicationMigrations } from './migrations.js';
export { Notifier } from './notifier.js';
export { defineRpc } from './rpc.js';
export { type ChangedKeys, type News, Stream } from './streams/stream.js';
export { defineStream, type KeysOf, type StreamReader, type StreamRow } from './streams/stream-definition.js';
export { Streams } from './streams/streams.js';
