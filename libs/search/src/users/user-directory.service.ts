import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { callbackContext, ModuleDispatcher } from '@rookery/module-host';
import { Config, type Requester } from '@rookery/platform';
import { normalize, queryWordsOf } from '../text/words.js';
import { UserDirectoryFollower } from './user-directory-follower.js';
import { type DirectoryUser, searchUsers, type UserQuery } from './user-directory.query.js';

/** What was found. */
export interface DirectoryResults {
  readonly users: readonly DirectoryUser[];
  /** There are more. */
  readonly limited: boolean;
}

const maxWords = 10;
/** Further pages that are looked at where modules hide users. */
const maxPages = 5;
const nothing: DirectoryResults = { users: [], limited: false };

/** Finds people by name or id. @spec client-server-api#user-directory */
@Injectable()
export class UserDirectory {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly modules: ModuleDispatcher,
    private readonly limiter: RateLimiter,
    private readonly follower: UserDirectoryFollower,
  ) {}

  /**
   * Users whom the requester may know of: who shares a room with them, or is in a public one; everybody, where the settings
   * say so. Modules may hide some.
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED`
   */
  async search(requester: Requester, term: string, limit: number): Promise<DirectoryResults> {
    if (!this.config.get('user_directory.enabled')) return nothing;
    await this.limiter.take('rc_user_directory', requester.userId, requester);
    const words = queryWordsOf(term, maxWords);
    if (words.length === 0) return nothing;
    const query: UserQuery = {
      requesterId: requester.userId,
      words,
      // Words hold none; the whole term must not, either: PostgreSQL refuses NUL.
      exact: normalize(term.replaceAll('\0', '').trim()),
      serverName: this.config.serverName,
      everybody: this.config.get('user_directory.search_all_users'),
      localFirst: this.config.get('user_directory.prefer_local_users'),
      localOnly: this.config.get('user_directory.exclude_remote_users'),
      lockedToo: this.config.get('user_directory.show_locked_users'),
      limit: limit + 1,
      offset: 0,
    };
    await this.follower.caughtUp();
    const users: DirectoryUser[] = [];
    for (let page = 0; ; page++) {
      const found = await searchUsers(this.database, { ...query, offset: page * limit });
      users.push(...(await this.#shown(requester, found.slice(0, limit))));
      const isMore = found.length > limit;
      if (users.length >= limit || !isMore || page >= maxPages)
        return { users: users.slice(0, limit), limited: isMore || users.length > limit };
    }
  }

  async #shown(requester: Requester, users: readonly DirectoryUser[]): Promise<readonly DirectoryUser[]> {
    if (!this.modules.has('checkUsernameForSpam')) return users;
    const context = callbackContext(requester);
    const verdicts = await Promise.all(
      users.map((user) => this.modules.gate('checkUsernameForSpam', context, user, requester.userId)),
    );
    return users.filter((_, index) => verdicts[index]?.allowed);
  }
}
