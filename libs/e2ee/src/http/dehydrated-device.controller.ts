import { Controller, Delete, Get, Param, Post, Put } from '@nestjs/common';
import { Access, client, type Infer, type InferQuery, json, JsonBody, param, Query, queryOf, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { DehydratedDeviceService } from '../dehydrated/dehydrated-device.service.js';

const path = (rest = ''): string[] => client(['unstable'], `/org.matrix.msc3814.v1/dehydrated_device${rest}`);
const maxEvents = 1_000;

/** Largest device with its keys, bytes. */
const bodyLimitBytes = 1_048_576;

const deviceBody = json.object({
  device_id: json.required('The id of the device.', json.string()),
  device_data: json.required('What the user needs to open it: encrypted.', json.anyObject()),
  initial_device_display_name: json.optional('What the device is called.', json.nullable(json.string())),
  device_keys: json.required('The identity keys of the device, signed by it.', json.anyObject()),
  one_time_keys: json.optional('One-time keys, by algorithm and id.', json.anyObject()),
  fallback_keys: json.optional('Fallback keys, by algorithm and id.', json.anyObject()),
});
const eventsByBodyBody = json.object({
  next_batch: json.optional('Where the page before ended; the first page unless given.', json.string()),
});

const eventsQuery = queryOf({
  limit: param.integer('How many entries at most.', { min: 1, max: maxEvents, clamp: true, otherwise: 100 }),
  from: param.string('Where the page begins: a token of an earlier answer.'),
});

/** MSC3814 */
@Controller()
export class DehydratedDeviceController {
  constructor(
    private readonly devices: DehydratedDeviceService,
    private readonly config: Config,
  ) {}

  /** PUT /_matrix/client/unstable/org.matrix.msc3814.v1/dehydrated_device */
  @Put(path())
  @Access({ auth: 'required', bodyLimitBytes })
  async put(@Who() requester: Requester, @JsonBody(deviceBody) body: Infer<typeof deviceBody>): Promise<object> {
    this.#checkEnabled();
    return { device_id: await this.devices.put(requester.userId, body) };
  }

  /** GET /_matrix/client/unstable/org.matrix.msc3814.v1/dehydrated_device */
  @Get(path())
  @Access({ auth: 'required' })
  async get(@Who() requester: Requester): Promise<object> {
    this.#checkEnabled();
    const { deviceId, data } = await this.devices.get(requester.userId);
    return { device_id: deviceId, device_data: data };
  }

  /** DELETE /_matrix/client/unstable/org.matrix.msc3814.v1/dehydrated_device */
  @Delete(path())
  @Access({ auth: 'required' })
  async delete(@Who() requester: Requester): Promise<object> {
    this.#checkEnabled();
    return { device_id: await this.devices.delete(requester.userId) };
  }

  /** GET /_matrix/client/unstable/org.matrix.msc3814.v1/dehydrated_device/{deviceId}/events */
  @Get(path('/:deviceId/events'))
  @Access({ auth: 'required' })
  events(
    @Who() requester: Requester,
    @Param('deviceId') deviceId: string,
    @Query(eventsQuery) query: InferQuery<typeof eventsQuery>,
  ): Promise<object> {
    const { limit } = query;
    return this.#events(requester, deviceId, query.from, limit);
  }

  /** POST /_matrix/client/unstable/org.matrix.msc3814.v1/dehydrated_device/{deviceId}/events: as clients once asked. */
  @Post(path('/:deviceId/events'))
  @Access({ auth: 'required' })
  eventsByBody(
    @Who() requester: Requester,
    @Param('deviceId') deviceId: string,
    @JsonBody(eventsByBodyBody, { optional: true }) body: Infer<typeof eventsByBodyBody>,
  ): Promise<object> {
    return this.#events(requester, deviceId, body['next_batch'] as string | undefined, 100);
  }

  async #events(requester: Requester, deviceId: string, from: string | undefined, limit: number): Promise<object> {
    this.#checkEnabled();
    if (from !== undefined && !/^\d{1,15}$/.test(from)) throw MatrixError.invalidParam('Not a token of this server');
    const page = await this.devices.events(requester.userId, deviceId, Number(from ?? 0), limit);
    return { events: page.events, next_batch: String(page.position) };
  }

  #checkEnabled(): void {
    if (!this.config.get('experimental_features.msc3814_enabled')) throw MatrixError.unrecognized();
  }
}
