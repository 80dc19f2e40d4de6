import { Controller, Post } from '@nestjs/common';
import { Access, Inbound, type InboundRequest, JsonBody, queryString, stable, Who } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { MessageSearch } from './message-search.service.js';

const schema = {
  type: 'object',
  required: ['search_categories'],
  properties: { search_categories: { type: 'object', properties: { room_events: { type: 'object' } } } },
};

@Controller()
export class SearchController {
  constructor(private readonly messages: MessageSearch) {}

  /** POST /_matrix/client/v3/search */
  @Post(stable('/search'))
  @Access({ auth: 'required', largeAnswer: true })
  async search(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @JsonBody(schema) body: { readonly search_categories: { readonly room_events?: JsonObject } },
  ): Promise<object> {
    const { room_events: criteria } = body.search_categories;
    if (criteria === undefined) return { search_categories: {} };
    const found = await this.messages.search(requester, criteria, queryString(request, 'next_batch'));
    return { search_categories: { room_events: found } };
  }
}
