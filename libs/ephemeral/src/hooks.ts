import { Injectable } from '@nestjs/common';
import type { Tx } from '@rookery/database';
import { Logger } from '@rookery/platform';
import type { PresenceState } from './model/presence-state.js';
import type { Receipt, StoredReceipt } from './model/receipt.js';

/** A presence before and after a change that others are told. */
export interface PresenceTurn {
  readonly before: PresenceState;
  readonly after: PresenceState;
  /** Whether the user is of this server. */
  readonly isLocal: boolean;
}

/** What higher libs do when users of this server type, read, come and go. */
export interface EphemeralHook {
  /** A local user began or stopped typing. Must not throw or block. */
  typingChanged?(roomId: string, userId: string, typing: boolean): void;
  /** Who is typing in a room is others than before, whether of this server or not. Must not throw or block. */
  typistsChanged?(roomId: string, userIds: readonly string[]): void;
  /** Writes in the transaction that stores receipts, local or remote ones. May run again: no effect beyond `tx`. */
  receiptsInTransaction?(tx: Tx, receipts: readonly Receipt[]): Promise<void>;
  /** Receipts of local users became durable; private ones are among them. Must not throw or block. */
  receiptsSent?(receipts: readonly StoredReceipt[]): void;
  /** Presence of local users became durable. Must not throw or block. */
  presenceChanged?(states: readonly PresenceState[]): void;
  /** Presences of users, of this server or another, became others, and that was told. Must not throw or block. */
  presenceTurned?(turns: readonly PresenceTurn[]): void;
  /** Users of other servers are to get these presences of local users. Must not throw or block. */
  presenceFor?(userIds: readonly string[], states: readonly PresenceState[]): void;
}

/** Where higher libs attach. Subscribe while the application starts. */
@Injectable()
export class EphemeralHooks {
  readonly #hooks: EphemeralHook[] = [];

  constructor(private readonly logger: Logger) {}

  subscribe(hook: EphemeralHook): void {
    this.#hooks.push(hook);
  }

  typingChanged(roomId: string, userId: string, typing: boolean): void {
    this.#tell((hook) => hook.typingChanged?.(roomId, userId, typing));
  }

  typistsChanged(roomId: string, userIds: readonly string[]): void {
    this.#tell((hook) => hook.typistsChanged?.(roomId, userIds));
  }

  async receiptsInTransaction(tx: Tx, receipts: readonly Receipt[]): Promise<void> {
    for (const hook of this.#hooks) await hook.receiptsInTransaction?.(tx, receipts);
  }

  receiptsSent(receipts: readonly StoredReceipt[]): void {
    this.#tell((hook) => hook.receiptsSent?.(receipts));
  }

  presenceChanged(states: readonly PresenceState[]): void {
    this.#tell((hook) => hook.presenceChanged?.(states));
  }

  presenceTurned(turns: readonly PresenceTurn[]): void {
    this.#tell((hook) => hook.presenceTurned?.(turns));
  }

  presenceFor(userIds: readonly string[], states: readonly PresenceState[]): void {
    this.#tell((hook) => hook.presenceFor?.(userIds, states));
  }

  #tell(call: (hook: EphemeralHook) => void): void {
    for (const hook of this.#hooks) {
      try {
        call(hook);
      } catch (error) {
        this.logger.error('A hook failed after the change was made', { err: error });
      }
    }
  }
}
