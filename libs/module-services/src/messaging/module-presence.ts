import { Injectable } from '@nestjs/common';
import { PresenceReader, PresenceService } from '@rookery/ephemeral';
import { isValidUserId, MatrixError } from '@rookery/matrix-types';
import type { MessagingApi } from '@rookery/module-api';
import { LocalAccounts } from '../accounts/local-accounts.js';

const maxPresences = 1_000;
const longestStatusBytes = 1_024;
const presences = new Set(['online', 'unavailable', 'offline', 'busy']);

const isStatus = (text: string): boolean =>
  typeof text === 'string' &&
  Buffer.byteLength(text) <= longestStatusBytes &&
  text.isWellFormed() &&
  !text.includes('\0');

/** Presence as modules set it and tell of it. */
@Injectable()
export class ModulePresence {
  constructor(
    private readonly local: LocalAccounts,
    private readonly presence: PresenceService,
    private readonly reader: PresenceReader,
  ) {}

  async sendLocalOnlinePresenceTo(userIds: readonly string[]): Promise<void> {
    if (userIds.length > maxPresences) throw new RangeError(`At most ${maxPresences} users are told at once`);
    for (const userId of userIds) {
      if (!isValidUserId(userId)) throw MatrixError.notUserId();
    }
    await this.reader.sendLocalPresenceTo(userIds);
  }

  async setPresenceForUsers(...[states]: Parameters<MessagingApi['setPresenceForUsers']>): Promise<void> {
    if (states.length > maxPresences) throw new RangeError(`At most ${maxPresences} presences are set at once`);
    for (const { userId, state, statusMsg } of states) {
      this.local.assertLocal(userId);
      if (!presences.has(state)) throw MatrixError.invalidParam('There is no such presence');
      if (statusMsg !== undefined && !isStatus(statusMsg)) {
        throw MatrixError.invalidParam(`A status message is a text of at most ${longestStatusBytes} bytes`);
      }
    }
    await this.presence.setForUsers(states);
    // Told at once: whoever looks after this call sees it.
    await this.presence.flush();
  }
}
