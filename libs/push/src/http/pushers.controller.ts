import { Controller, Get, Post } from '@nestjs/common';
import { Access, type Infer, json, JsonBody, stable, Who } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { pusherContent } from '../pushers/pusher.js';
import { PushersService } from '../pushers/pushers.service.js';

const setSchema = json.object({
  kind: json.required('The kind of pusher: `http` or `email`; `null` deletes it.', json.nullable(json.string())),
  app_id: json.required('The application that it belongs to; the address does for `email`: `m.email`.', json.string()),
  pushkey: json.required(
    'What tells one device from another at the push gateway; the address of an `email` pusher.',
    json.string(),
  ),
  append: json.optional('Whether other users may have a pusher with the same application and key.', json.boolean()),
  'org.matrix.msc3881.enabled': json.optional('Whether it pushes (MSC3881).', json.boolean()),
});

@Controller()
export class PushersController {
  constructor(private readonly pushers: PushersService) {}

  /** GET /_matrix/client/v3/pushers */
  @Get(stable('/pushers'))
  @Access({ auth: 'required' })
  async list(@Who() requester: Requester): Promise<{ pushers: readonly JsonObject[] }> {
    const [pushers, canToggle] = await Promise.all([
      this.pushers.list(requester.userId),
      this.pushers.canToggle(requester.userId),
    ]);
    return { pushers: pushers.map((pusher) => pusherContent(pusher, canToggle)) };
  }

  /** POST /_matrix/client/v3/pushers/set */
  @Post(stable('/pushers/set'))
  @Access({ auth: 'required' })
  async set(@Who() requester: Requester, @JsonBody(setSchema) body: Infer<typeof setSchema>): Promise<object> {
    await this.pushers.set(requester, body);
    return {};
  }
}
