import { Injectable } from '@nestjs/common';
import { Config } from '@rookery/platform';
import type { SyncContext } from '../sync-context.js';
import type { AccountDataNews } from './account-data.js';
import { EphemeralSection } from './ephemeral.js';
import { type RoomEntry, RoomList } from './room-list.js';
import { StickySection } from './sticky.js';

/** Which rooms a sync tells of. */
@Injectable()
export class RoomsWithNews {
  readonly #excluded: ReadonlySet<string>;

  constructor(
    private readonly list: RoomList,
    private readonly ephemeral: EphemeralSection,
    private readonly sticky: StickySection,
    config: Config,
  ) {
    this.#excluded = new Set(config.get('exclude_rooms_from_sync'));
  }

  /**
   * Of all sections.
   * @param joined rooms that the user is in at the end of this sync
   * @param accountData what changed of account data, in rooms as well
   */
  async entries(
    joined: ReadonlySet<string>,
    accountData: AccountDataNews,
    context: SyncContext,
  ): Promise<readonly RoomEntry[]> {
    const ephemeral = await this.ephemeral.changedRooms(joined, context);
    const listed = await this.list.entries(context, joined, [
      ...accountData.byRoom.keys(),
      ...ephemeral,
      ...this.sticky.changedRooms(joined, context),
    ]);
    return listed.filter((entry) => !this.#excluded.has(entry.roomId));
  }
}
