import { Injectable } from '@nestjs/common';
import type { ExtensionContext, ExtensionQuery, Written } from './extension-context.js';
import { ProfilesExtension } from './profiles-extension.js';
import { StickyUpdates } from './sticky-updates.js';
import { ThreadUpdatesReader } from './thread-updates.js';

/** Extensions that are not specified yet; each is absent where the server is not set so. */
@Injectable()
export class UnstableExtensions {
  constructor(
    private readonly threadUpdates: ThreadUpdatesReader,
    private readonly stickyUpdates: StickyUpdates,
    private readonly profilesOfOthers: ProfilesExtension,
  ) {}

  /** Subscriptions to threads (MSC4308). */
  async threads({ userId, since, now }: ExtensionQuery, limit: number): Promise<Written | undefined> {
    if (!this.threadUpdates.isEnabled) return undefined;
    const { body, next } = await this.threadUpdates.between(userId, since?.threads ?? 0, now.threads, limit);
    if (Object.keys(body).length === 0) return undefined;
    return { value: { ...body, ...(next !== undefined && { prev_batch: next }) }, hasNews: true };
  }

  /** Sticky events (MSC4480). */
  async sticky(
    { userId, deviceId, now, joined, anew }: ExtensionQuery,
    { since = 0, limit }: { readonly since: number | undefined; readonly limit: number },
    { selection, timelines }: ExtensionContext,
  ): Promise<Written | undefined> {
    if (!this.stickyUpdates.isEnabled) return undefined;
    const isWanted = (roomId: string): boolean => selection.isOfInterest(roomId);
    return this.stickyUpdates.read({
      userId,
      deviceId,
      rooms: [...joined].filter(isWanted),
      anew: anew.filter(isWanted),
      after: Math.min(since, now.sticky),
      upTo: now.sticky,
      limit,
      shown: new Set([...timelines.values()].flatMap((eventIds) => [...eventIds])),
    });
  }

  /** Profiles of others (MSC4262). */
  async profiles(
    query: ExtensionQuery,
    fields: ReadonlySet<string> | undefined,
    context: ExtensionContext,
  ): Promise<Written | undefined> {
    if (!this.profilesOfOthers.isEnabled) return undefined;
    const users = await this.profilesOfOthers.read(query, fields, context);
    return Object.keys(users).length === 0 ? undefined : { value: { users }, hasNews: true };
  }
}
