import { Injectable } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { CallbackContext } from '@rookery/module-api';
import {
  type ActingModule,
  assertAllowed,
  callbackContext,
  ModuleDispatcher,
  refusalError,
  requesterForModules,
} from '@rookery/module-host';
import type { Requester } from '@rookery/platform';
import { AliasClaims } from '../directory/alias-claims.js';
import { PublicationRules } from '../directory/publication-rules.js';
import type { Unchecked } from '../model/drafts.js';
import { Participation } from '../sending/participation.js';
import { checkCreateRoom, type CreateRoomRequest } from './create-room.schema.js';

/** Whether somebody may make a room as it is asked for: limits, settings, modules. */
@Injectable()
export class RoomAdmission {
  constructor(
    private readonly participation: Participation,
    private readonly limiter: RateLimiter,
    private readonly modules: ModuleDispatcher,
    private readonly claims: AliasClaims,
    private readonly publication: PublicationRules,
  ) {}

  /**
   * The request as modules have left it.
   * @param options.bare the requester was asked before, and the limit taken
   * @param options.unchecked the module that makes the room: the rules of the others are asked, and nothing else
   * @throws MatrixError 403 `M_FORBIDDEN`, `M_RESOURCE_LIMIT_EXCEEDED`, `M_CONSENT_NOT_GIVEN`; 429 `M_LIMIT_EXCEEDED`
   */
  async admit(
    requester: Requester,
    body: CreateRoomRequest,
    { bare, unchecked = false }: { readonly bare?: boolean; readonly unchecked?: Unchecked },
  ): Promise<CreateRoomRequest> {
    const by = typeof unchecked === 'object' ? unchecked : undefined;
    if (!bare && !by) {
      await this.participation.assertMaySend(requester);
      await this.limiter.take('rc_room_creation', requester.userId, requester);
    }
    const context = callbackContext(requester, { duringRoomCreation: true, ...(by && { source: 'module' }) });
    const request = await this.#asRulesLeave(requester, body, context, by);
    if (!by && this.modules.has('userMayCreateRoom')) {
      assertAllowed(await this.modules.gate('userMayCreateRoom', context, requester.userId, { ...request }));
    }
    return request;
  }

  async #asRulesLeave(
    requester: Requester,
    body: CreateRoomRequest,
    context: CallbackContext,
    by: ActingModule | undefined,
  ): Promise<CreateRoomRequest> {
    if (!this.modules.has('onCreateRoom')) return body;
    const args = [requesterForModules(requester), { ...body }, requester.isAdmin] as const;
    const verdict = by
      ? await this.modules.transformByOthers(by, 'onCreateRoom', context, ...args)
      : await this.modules.transform('onCreateRoom', context, ...args);
    if (!verdict.allowed) throw refusalError(verdict);
    const request = verdict.value as CreateRoomRequest;
    checkChanged(request);
    return request;
  }

  /**
   * Takes the inviter's limit for everybody who is to be invited.
   * @throws MatrixError 400 `M_INVALID_PARAM` for more than may ever be invited at once, 429 `M_LIMIT_EXCEEDED`
   */
  async takeInvites(requester: Requester, count: number): Promise<void> {
    if (count > 0) await this.limiter.take('rc_invites.per_issuer', requester.userId, requester, count);
  }

  /** @throws MatrixError 400 `M_EXCLUSIVE`, 403 `M_FORBIDDEN` where the room may not have this alias */
  async checkAlias(requester: Requester, alias: string): Promise<void> {
    if (this.claims.isReserved(alias, requester.appserviceId)) {
      throw MatrixError.exclusive();
    }
    // As when they bind it to a room that is there.
    if (requester.appserviceId !== undefined) return;
    if (!requester.isAdmin && !this.publication.mayMakeAlias(requester.userId, '', alias)) {
      throw MatrixError.forbidden('You may not make this alias');
    }
    if (!this.modules.has('userMayCreateRoomAlias')) return;
    const context = callbackContext(requester, { duringRoomCreation: true });
    assertAllowed(await this.modules.gate('userMayCreateRoomAlias', context, requester.userId, alias));
  }

  /** Whether the room may be in the directory. */
  async mayPublish(requester: Requester, roomId: string, alias: string | undefined): Promise<boolean> {
    const aliases = alias === undefined ? [] : [alias];
    if (!this.publication.mayPublish(requester.userId, roomId, aliases, requester.isAdmin)) return false;
    if (!this.modules.has('userMayPublishRoom')) return true;
    const context = callbackContext(requester, { duringRoomCreation: true });
    return (await this.modules.gate('userMayPublishRoom', context, requester.userId, roomId)).allowed;
  }
}

/** What modules made of a request has to be one still: from here on nobody looks. @throws Error naming what is wrong */
function checkChanged(request: CreateRoomRequest): void {
  try {
    checkCreateRoom(request);
  } catch (error) {
    const what = MatrixError.is(error) ? error.message : String(error);
    throw new Error(`A module's onCreateRoom made a request that no client could make: ${what}`, { cause: error });
  }
}
