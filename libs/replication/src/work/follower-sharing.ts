import { type FollowerParts, SharedFollower, type SharedFollowing } from './shared-follower.js';

/** Has streams followed by one process of a server at a time, whichever that is. In a server that is a single process that one follows. */
export class FollowerSharing {
  readonly #parts: FollowerParts;

  constructor(parts: FollowerParts) {
    this.#parts = parts;
  }

  /** Makes a follower part of a role; once for each in every process, before the server starts. */
  share(following: SharedFollowing): SharedFollower {
    return new SharedFollower(this.#parts, following);
  }
}
