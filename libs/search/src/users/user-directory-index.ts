import { Injectable, type OnModuleInit } from '@nestjs/common';
import { defineBackgroundUpdate, type Tx } from '@rookery/database';
import { UserHooks } from '@rookery/users';
import { rebuildUpdates } from '../migrations/index.js';
import { deleteUsers, selectAccountIds, selectLocalUsers, selectMembers, upsertUsers } from './user-directory.query.js';

/** Keeps users of this server in the directory, as their profiles say, in the transactions that change them. Of others `UserDirectoryFollower` does. */
@Injectable()
export class UserDirectoryIndex implements OnModuleInit {
  constructor(private readonly hooks: UserHooks) {}

  onModuleInit(): void {
    const refresh = { inTransaction: (tx: Tx, { userId }: { readonly userId: string }) => refreshLocal(tx, userId) };
    this.hooks.registered.subscribe(refresh);
    this.hooks.profileChanged.subscribe(refresh);
    this.hooks.reactivated.subscribe(refresh);
    this.hooks.deactivated.subscribe({ inTransaction: (tx, { userId }) => deleteUsers(tx, [userId]) });
  }
}

const refreshLocal = (tx: Tx, userId: string): Promise<void> => refreshAll(tx, [userId]);

/** Has the directory say of users of this server what it should, which of some is nothing. */
async function refreshAll(tx: Tx, userIds: readonly string[]): Promise<void> {
  const listed = await selectLocalUsers(tx, userIds);
  await upsertUsers(tx, listed);
  const found = new Set(listed.map(({ userId }) => userId));
  const others = userIds.filter((userId) => !found.has(userId));
  if (others.length > 0) await deleteUsers(tx, others);
}

async function listMembers(tx: Tx, after: string, limit: number): Promise<string[]> {
  const members = await selectMembers(tx, after, limit);
  await upsertUsers(tx, members);
  return members.map(({ userId }) => userId);
}

async function listAccounts(tx: Tx, after: string, limit: number): Promise<string[]> {
  const userIds = await selectAccountIds(tx, after, limit);
  await refreshAll(tx, userIds);
  return userIds;
}

/** Fills the directory anew: first with members of rooms from other servers, then with the users of this one. */
export const userDirectoryUpdate = defineBackgroundUpdate({
  name: rebuildUpdates.users,
  async run({ tx, progress, batchSize }) {
    const after = typeof progress['after'] === 'string' ? progress['after'] : '';
    const isLocal = progress['stage'] === 'local';
    const seen = await (isLocal ? listAccounts : listMembers)(tx, after, batchSize);
    const isLast = seen.length < batchSize;
    return {
      items: seen.length,
      progress: isLast
        ? { stage: 'local', after: '' }
        : { stage: isLocal ? 'local' : 'members', after: seen.at(-1) ?? after },
      finished: isLast && isLocal,
    };
  },
});
