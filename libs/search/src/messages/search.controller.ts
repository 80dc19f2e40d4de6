import { Controller, Post } from '@nestjs/common';
import { Access, type Infer, type InferQuery, json, JsonBody, param, Query, queryOf, stable, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { MessageSearch } from './message-search.service.js';

const schema = json.object({
  search_categories: json.required(
    'What is searched, by category.',
    json.object({
      room_events: json.optional('The search for events, and what is told of those found.', json.anyObject()),
    }),
  ),
});

const searchQuery = queryOf({
  next_batch: param.string('Where the page begins: `next_batch` of an earlier answer.'),
});

@Controller()
export class SearchController {
  constructor(private readonly messages: MessageSearch) {}

  /** POST /_matrix/client/v3/search */
  @Post(stable('/search'))
  @Access({ auth: 'required', largeAnswer: true })
  async search(
    @Who() requester: Requester,
    @Query(searchQuery) query: InferQuery<typeof searchQuery>,
    @JsonBody(schema) body: Infer<typeof schema>,
  ): Promise<object> {
    const { room_events: criteria } = body.search_categories;
    if (criteria === undefined) return { search_categories: {} };
    const found = await this.messages.search(requester, criteria, query.next_batch);
    return { search_categories: { room_events: found } };
  }
}
