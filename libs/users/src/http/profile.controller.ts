import { Controller, Delete, Get, Param, Put } from '@nestjs/common';
import {
  Access,
  client,
  Inbound,
  type InboundRequest,
  type Infer,
  type InferQuery,
  json,
  JsonBody,
  param,
  Query,
  queryOf,
  RateLimiter,
  stable,
  Who,
} from '@rookery/http';
import { isValidUserId, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import type { Profile } from '../common/profile.js';
import { ProfileService } from '../profiles/profile.service.js';

const fieldPaths = [
  ...stable('/profile/:userId/:field'),
  ...client(['unstable'], '/uk.tcpip.msc4133/profile/:userId/:field'),
];

const fieldBody = json.described('The new value, under the name of the field.', json.anyObject());

const changeQuery = queryOf({
  'org.matrix.msc4069.propagate': param.boolean('Whether the change reaches the rooms of the user (MSC4069).', {
    otherwise: true,
  }),
});
type ChangeQuery = InferQuery<typeof changeQuery>;

@Controller()
export class ProfileController {
  constructor(
    private readonly profiles: ProfileService,
    private readonly limiter: RateLimiter,
    private readonly config: Config,
  ) {}

  /** GET /_matrix/client/v3/profile/{userId} */
  @Get([...stable('/profile/:userId'), ...client(['unstable'], '/uk.tcpip.msc4133/profile/:userId')])
  @Access({ auth: 'optional', guests: true, anyProcess: true })
  async get(
    @Who() requester: Requester | undefined,
    @Inbound() request: InboundRequest,
    @Param('userId') userId: string,
  ): Promise<Profile> {
    await this.#takeLookUp(requester, request, userId);
    return this.profiles.lookUp(requester, checkUserId(userId));
  }

  /** GET /_matrix/client/v3/profile/{userId}/{keyName} */
  @Get(fieldPaths)
  @Access({ auth: 'optional', guests: true, anyProcess: true })
  async getField(
    @Who() requester: Requester | undefined,
    @Inbound() request: InboundRequest,
    @Param('userId') userId: string,
    @Param('field') field: string,
  ): Promise<Profile> {
    await this.#takeLookUp(requester, request, userId);
    return this.profiles.lookUp(requester, checkUserId(userId), field);
  }

  /** PUT /_matrix/client/v3/profile/{userId}/{keyName} */
  @Put(fieldPaths)
  @Access({ auth: 'required', guests: true, suspended: false })
  async setField(
    @Who() requester: Requester,
    @Query(changeQuery) query: ChangeQuery,
    @Param('userId') userId: string,
    @Param('field') field: string,
    @JsonBody(fieldBody) body: Infer<typeof fieldBody>,
  ): Promise<object> {
    checkUserId(userId);
    if (requester.isGuest && field !== 'displayname') throw MatrixError.guestAccessForbidden();
    if (!Object.hasOwn(body, field)) throw MatrixError.missingParam(`Missing parameter '${field.slice(0, 255)}'`);
    await this.limiter.take('rc_message', requester.userId, requester);
    await this.profiles.setField(requester, userId, field, body[field], this.#propagates(query));
    return {};
  }

  /** DELETE /_matrix/client/v3/profile/{userId}/{keyName} */
  @Delete(fieldPaths)
  @Access({ auth: 'required', guests: true, suspended: false })
  async deleteField(
    @Who() requester: Requester,
    @Query(changeQuery) query: ChangeQuery,
    @Param('userId') userId: string,
    @Param('field') field: string,
  ): Promise<object> {
    checkUserId(userId);
    if (requester.isGuest && field !== 'displayname') throw MatrixError.guestAccessForbidden();
    await this.limiter.take('rc_message', requester.userId, requester);
    await this.profiles.setField(requester, userId, field, undefined, this.#propagates(query));
    return {};
  }

  async #takeLookUp(requester: Requester | undefined, request: InboundRequest, userId: string): Promise<void> {
    // Counted once, by the process that answers.
    this.profiles.assertAnsweredHere(userId);
    await this.limiter.take('rc_profile', requester?.userId ?? request.ip, requester);
  }

  /** MSC4069: a client may keep a change out of its rooms. */
  #propagates(query: ChangeQuery): boolean {
    if (!this.config.get('experimental_features.msc4069_profile_inhibit_propagation')) return true;
    return query['org.matrix.msc4069.propagate'];
  }
}

function checkUserId(userId: string): string {
  if (!isValidUserId(userId)) throw MatrixError.notUserId();
  return userId;
}
