import { Controller, Get, Param, Post } from '@nestjs/common';
import { Access, client, Inbound, type InboundRequest, type Infer, json, JsonBody, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { type DelayedAction, DelayedEvents } from '../delayed/delayed-events.service.js';

const path = '/org.matrix.msc4140/delayed_events';

const actBody = json.object({
  action: json.required(
    'What becomes of the event: it is never sent, waits again from now, or is sent now.',
    json.enum('cancel', 'restart', 'send'),
  ),
});

/** Managing events that are to be sent later (MSC4140). */
@Controller()
export class DelayedEventsController {
  constructor(private readonly delayed: DelayedEvents) {}

  /** GET /_matrix/client/unstable/org.matrix.msc4140/delayed_events */
  @Get(client(['unstable'], path))
  @Access({ auth: 'required', guests: true })
  async list(@Who() requester: Requester): Promise<object> {
    return { delayed_events: await this.delayed.list(requester) };
  }

  /** GET /_matrix/client/unstable/org.matrix.msc4140/delayed_events/{delayId} */
  @Get(client(['unstable'], `${path}/:delayId`))
  @Access({ auth: 'required', guests: true })
  one(@Who() requester: Requester, @Param('delayId') delayId: string): Promise<object> {
    return this.delayed.one(requester, delayId);
  }

  /** POST /_matrix/client/unstable/org.matrix.msc4140/delayed_events/{delayId} */
  @Post(client(['unstable'], `${path}/:delayId`))
  @Access({ auth: 'optional', guests: true })
  async act(
    @Who() requester: Requester | undefined,
    @Inbound() request: InboundRequest,
    @Param('delayId') delayId: string,
    @JsonBody(actBody)
    body: Infer<typeof actBody>,
  ): Promise<object> {
    await this.delayed.act(delayId, body['action'] as DelayedAction, requester, request.ip);
    return {};
  }

  /** POST /_matrix/client/unstable/org.matrix.msc4140/delayed_events/{delayId}/cancel */
  @Post(client(['unstable'], `${path}/:delayId/cancel`))
  @Access({ auth: 'optional', guests: true })
  async cancel(
    @Who() requester: Requester | undefined,
    @Inbound() request: InboundRequest,
    @Param('delayId') delayId: string,
  ): Promise<object> {
    await this.delayed.act(delayId, 'cancel', requester, request.ip);
    return {};
  }

  /** POST /_matrix/client/unstable/org.matrix.msc4140/delayed_events/{delayId}/restart */
  @Post(client(['unstable'], `${path}/:delayId/restart`))
  @Access({ auth: 'optional', guests: true })
  async restart(
    @Who() requester: Requester | undefined,
    @Inbound() request: InboundRequest,
    @Param('delayId') delayId: string,
  ): Promise<object> {
    await this.delayed.act(delayId, 'restart', requester, request.ip);
    return {};
  }

  /** POST /_matrix/client/unstable/org.matrix.msc4140/delayed_events/{delayId}/send */
  @Post(client(['unstable'], `${path}/:delayId/send`))
  @Access({ auth: 'optional', guests: true })
  async send(
    @Who() requester: Requester | undefined,
    @Inbound() request: InboundRequest,
    @Param('delayId') delayId: string,
  ): Promise<object> {
    await this.delayed.act(delayId, 'send', requester, request.ip);
    return {};
  }
}
