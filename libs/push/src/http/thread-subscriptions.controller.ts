import { Controller, Delete, Get, Param, Put } from '@nestjs/common';
import { Access, client, type Infer, json, JsonBody, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { ThreadSubscriptions } from '../threads/thread-subscriptions.service.js';

const path = client(['unstable'], '/io.element.msc4306/rooms/:roomId/thread/:threadId/subscription');
const body = json.object({
  automatic: json.optional('The event that made the client subscribe, where the user did not.', json.string()),
});

/** Subscribing to threads (MSC4306). */
@Controller()
export class ThreadSubscriptionsController {
  constructor(private readonly threads: ThreadSubscriptions) {}

  /** GET /_matrix/client/unstable/io.element.msc4306/rooms/{roomId}/thread/{eventId}/subscription */
  @Get(path)
  @Access({ auth: 'required', anyProcess: true })
  async get(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @Param('threadId') threadId: string,
  ): Promise<object> {
    this.#check();
    return { automatic: (await this.threads.get(requester, roomId, threadId)).automatic };
  }

  /** PUT /_matrix/client/unstable/io.element.msc4306/rooms/{roomId}/thread/{eventId}/subscription */
  @Put(path)
  @Access({ auth: 'required', anyProcess: true })
  async subscribe(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @Param('threadId') threadId: string,
    @JsonBody(body) { automatic }: Infer<typeof body>,
  ): Promise<object> {
    this.#check();
    await this.threads.subscribe(requester, roomId, threadId, automatic);
    return {};
  }

  /** DELETE /_matrix/client/unstable/io.element.msc4306/rooms/{roomId}/thread/{eventId}/subscription */
  @Delete(path)
  @Access({ auth: 'required', anyProcess: true })
  async unsubscribe(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @Param('threadId') threadId: string,
  ): Promise<object> {
    this.#check();
    await this.threads.unsubscribe(requester, roomId, threadId);
    return {};
  }

  #check(): void {
    if (!this.threads.isEnabled) throw MatrixError.unrecognized();
  }
}
