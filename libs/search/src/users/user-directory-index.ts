import { Injectable, type OnModuleInit } from '@nestjs/common';
import { defineBackgroundUpdate, type Tx } from '@rookery/database';
import { domainOf } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { type EventBatch, RoomHooks } from '@rookery/rooms';
import { UserHooks } from '@rookery/users';
import { rebuildUpdates } from '../migrations/index.js';
import {
  deleteStrangers,
  deleteUsers,
  type DirectoryUser,
  selectLocalUsers,
  selectMembers,
  upsertUsers,
} from './user-directory.query.js';

/**
 * Keeps the directory of users, in the transactions that change them: of users of this server what their profiles say, of
 * others what the member event says that came to count last.
 */
@Injectable()
export class UserDirectoryIndex implements OnModuleInit {
  constructor(
    private readonly userHooks: UserHooks,
    private readonly roomHooks: RoomHooks,
    private readonly config: Config,
  ) {}

  onModuleInit(): void {
    const refresh = { inTransaction: (tx: Tx, { userId }: { readonly userId: string }) => refreshLocal(tx, userId) };
    this.userHooks.registered.subscribe(refresh);
    this.userHooks.profileChanged.subscribe(refresh);
    this.userHooks.reactivated.subscribe(refresh);
    this.userHooks.deactivated.subscribe({ inTransaction: (tx, { userId }) => deleteUsers(tx, [userId]) });
    this.roomHooks.subscribe({ inTransaction: (tx, batch) => this.#members(tx, batch) });
  }

  async #members(tx: Tx, { moves, backfilled }: EventBatch): Promise<void> {
    if (backfilled || moves.length === 0) return;
    const joined = new Map<string, DirectoryUser>();
    const left = new Set<string>();
    // The last word counts.
    for (const { userId, membership, event, prevEventId } of moves) {
      if (domainOf(userId) === this.config.serverName) continue;
      joined.delete(userId);
      left.delete(userId);
      if (membership === 'join') {
        const { displayname, avatar_url: avatarUrl } = event?.content ?? {};
        joined.set(userId, {
          userId,
          displayName: typeof displayname === 'string' ? displayname : undefined,
          avatarUrl: typeof avatarUrl === 'string' ? avatarUrl : undefined,
        });
      } else if (prevEventId !== undefined) left.add(userId);
    }
    await upsertUsers(tx, [...joined.values()]);
    if (left.size > 0) await deleteStrangers(tx, [...left]);
  }
}

async function refreshLocal(tx: Tx, userId: string): Promise<void> {
  const found = await selectLocalUsers(tx, { userIds: [userId] });
  if (found.length > 0) await upsertUsers(tx, found);
  else await deleteUsers(tx, [userId]);
}

/** Fills the directory anew: first with members of rooms, then, whose word counts more, with the users of this server. */
export const userDirectoryUpdate = defineBackgroundUpdate({
  name: rebuildUpdates.users,
  async run({ tx, progress, batchSize }) {
    const after = typeof progress['after'] === 'string' ? progress['after'] : '';
    const isLocal = progress['stage'] === 'local';
    const users = isLocal
      ? await selectLocalUsers(tx, { after, limit: batchSize })
      : await selectMembers(tx, after, batchSize);
    await upsertUsers(tx, users);
    const isLast = users.length < batchSize;
    return {
      items: users.length,
      progress: isLast
        ? { stage: 'local', after: '' }
        : { stage: isLocal ? 'local' : 'members', after: users.at(-1)?.userId ?? after },
      finished: isLast && isLocal,
    };
  },
});
