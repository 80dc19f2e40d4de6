import { defineRole, defineRpc } from '@rookery/replication';
import type { Outgoing } from './outgoing.js';

/** Sends to other servers: each of those belongs to a shard. */
export const federationSenderRole = defineRole('federation_sender', 16);

/** A process that has shards wants to be told what there is for their servers, from its answer on. */
export const attachSender = defineRpc<
  {
    /** By which it is called. */
    readonly process: string;
    readonly shards: readonly number[];
  },
  null
>('federation_sender_attach', { timeoutMs: 5_000 });

/** What there is for servers of a process, in order. */
export interface SenderBatch {
  /** Who tells it: differs for each process that ever wrote, and each time it began to tell this one. */
  readonly link: string;
  /** 1, 2, 3… of what was told by that link. What is repeated has the number that it had. */
  readonly number: number;
  readonly outgoing: readonly Outgoing[];
  /** Events that were redacted or deleted. */
  readonly forgotten: readonly string[];
  /** Something was left out: it lies in the database, where it is no news for a moment only. */
  readonly isIncomplete: boolean;
}

export const takeBatch = defineRpc<SenderBatch, null>('federation_sender_take', { timeoutMs: 10_000 });
